"""Daily quotes of five tickers from 2000 to 2013 (bokeh_sampledata), as CSV, one file per year.

The package holds one ticker after the other; a feed sends them day by day, so the rows are interleaved by date.
GOOG joins on 2004-08-19 and FB on 2012-05-18: the cycle grows twice. Header and figures are left as they are.
"""

from __future__ import annotations

import gzip

from demo.landing import insert_defects, package_file

FOLDERS = {"2004-12-31": range(2000, 2005), "2009-12-31": range(2005, 2010), "2013-03-01": range(2010, 2014)}


def stocks_files() -> dict[str, bytes]:
    """Return the landing files by name, defects included."""
    text = gzip.decompress(package_file("bokeh_sampledata", "_data/stocks.csv.gz").read_bytes()).decode(
        "utf-8"
    )
    header, *rows = text.splitlines()
    rows.sort(key=lambda row: row.split(",")[1::-1])  # by date, then ticker
    years: dict[int, list[bytes]] = {}
    for row in rows:
        years.setdefault(int(row.split(",")[1][:4]), [header.encode()]).append(row.encode())
    files = {
        _name(folder, year): insert_defects(years[year], DEFECTS.get(year, {}))
        for folder, in_folder in FOLDERS.items()
        for year in in_folder
    }
    files[_name("2009-12-31", 2005)] += b"MSFT,2005-12-30,26.2"  # the last line, cut short, with no line feed
    # what a spreadsheet makes of a file: carriage returns and a byte order mark, no defect
    files[_name("2009-12-31", 2008)] = b"\xef\xbb\xbf" + files[_name("2009-12-31", 2008)].replace(
        b"\n", b"\r\n"
    )
    files["2009-12-31/stocks-2006_copy.csv"] = files[_name("2009-12-31", 2006)]
    files["2013-03-01/stocks-2013-04.csv"] = b""
    return dict(sorted(files.items()))


def _name(folder: str, year: int) -> str:
    return f"{folder}/stocks-{year}.csv"


DEFECTS = {
    2000: {
        20: b"AAPL,2000-03-09,120.87,125.0,118.25,122.25,n/a,3.9",
        333: b"IBM,2000-08-11,119.0,121.0,118.5,120.56,3.5e6,99.6",
    },
    2001: {7: b",2001-01-03,14.5,16.69,14.44,16.37,13056300,8.05"},
    2002: {100: b"MSFT,2002-02-15,61.2,61.4,60.1,60.23,27400000,20.1,EXTRA"},
    2003: {
        250: b"MS\xd6FT,2003-05-01,25.6,25.8,25.4,25.7,47000000,18.8",
        251: b"IBM,01/05/2003,84.8,85.2,84.1,84.9,5600000,72.5",
    },
    2010: {
        5: b"GOOG,2010-01-04,626.95,629.51,624.24,inf,1956200,626.75",
        6: b"GOOG,,626.95,629.51,624.24,626.75,1956200,626.75",
        7: b"",
    },
    2011: {400: b'"AAPL,2011-05-25,335.17,336.89,334.43,335.59,10508600,333.2'},
}
"""By year: line number (the header is line 1) and the bad line put there. A blank line is no defect."""
