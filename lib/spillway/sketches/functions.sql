-- Questions to stored sketches for whoever has SQL alone: spark-sql, a Thrift server, a warehouse's editor.
--
--     spark-sql -i functions.sql
--     SELECT spillway_sql_frequency(spillway_sql_sum(collect_list(counters)), any_value(parameters),
--                                   spillway_sql_key_of_string('JFK', 1)).value
--     FROM delta.`lake/sketches` WHERE stream = 'weather' AND kind = 'count_min' AND name = 'origin'
--
-- Without TEMPORARY they stay in a catalog. They take what the tables `sketches` and `daily_sketches` hold: `counters`
-- and `parameters` of kind count_min; counters of equal parameters add up. What they do not do: the sharper estimator
-- (cmm_order) of Spillway's own functions, top keys, near-duplicates, membership. Kinds quantiles and distinct need
-- none of them: Spark's kll_sketch_* and hll_sketch_* functions take their `payload`.
--
-- A key is xxhash64 of a header, which stands for the types and the seed and is marked by what is null, and then of
-- the values; of several attributes:
--     xxhash64(spillway_sql_header('string|integer', 1) ^ (IF(a IS NULL, 1, 0) + IF(b IS NULL, 2, 0)), a, b)

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_header(types STRING, seed BIGINT) RETURNS BIGINT
RETURN xxhash64(concat('spillway.key.1|', seed, '|', types));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_key_of_string(value STRING, seed BIGINT) RETURNS BIGINT
RETURN xxhash64(spillway_sql_header('string', seed) ^ IF(value IS NULL, 1L, 0L), value);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_key_of_integer(value BIGINT, seed BIGINT) RETURNS BIGINT
RETURN xxhash64(spillway_sql_header('integer', seed) ^ IF(value IS NULL, 1L, 0L), value);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_key_of_double(value DOUBLE, seed BIGINT) RETURNS BIGINT
RETURN xxhash64(spillway_sql_header('double', seed) ^ IF(value IS NULL, 1L, 0L), value);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_key_of_timestamp(value TIMESTAMP, seed BIGINT) RETURNS BIGINT
RETURN xxhash64(spillway_sql_header('timestamp', seed) ^ IF(value IS NULL, 1L, 0L), value);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_key_of_date(value DATE, seed BIGINT) RETURNS BIGINT
RETURN xxhash64(spillway_sql_header('date', seed) ^ IF(value IS NULL, 1L, 0L), value);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_width(parameters STRING) RETURNS INT
RETURN CAST(get_json_object(parameters, '$.width') AS INT);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_depth(parameters STRING) RETURNS INT
RETURN CAST(get_json_object(parameters, '$.depth') AS INT);

-- tables of equal parameters as one: spillway_sql_sum(collect_list(counters))
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_sum(tables ARRAY<ARRAY<BIGINT>>) RETURNS ARRAY<BIGINT>
RETURN aggregate(tables, transform(tables[0], x -> 0L), (sum, one) -> zip_with(sum, one, (x, y) -> x + y));

-- the rows that were sketched: what one row of the table adds up to
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_first_row(counters ARRAY<BIGINT>, width INT) RETURNS BIGINT
RETURN aggregate(slice(counters, 1, width), 0L, (sum, x) -> sum + x);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_rows(counters ARRAY<BIGINT>, parameters STRING) RETURNS BIGINT
RETURN (SELECT spillway_sql_first_row(c, w) FROM (SELECT counters AS c, spillway_sql_width(parameters) AS w));

-- java.util.Random, of which Spark's count_min_sketch draws its hashes; in parts that no product overflows
-- (Spark takes no such function within a lambda, so that what is needed there is written out)
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_drawn(seed BIGINT, depth INT) RETURNS ARRAY<BIGINT>
RETURN aggregate(sequence(1, depth),
  named_struct('state', (seed ^ 25214903917L) & 281474976710655L, 'factors', CAST(array() AS ARRAY<BIGINT>)),
  (held, i) -> named_struct(
    'state', ((held.state & 16777215L) * 25214903917L
      + shiftleft((shiftright(held.state, 24) * 25214903917L) & 16777215L, 24) + 11L) & 281474976710655L,
    'factors', array_append(held.factors, shiftright(((held.state & 16777215L) * 25214903917L
      + shiftleft((shiftright(held.state, 24) * 25214903917L) & 16777215L, 24) + 11L) & 281474976710655L, 17))),
  held -> held.factors);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_factors(parameters STRING) RETURNS ARRAY<BIGINT>
RETURN (SELECT spillway_sql_drawn(s, d) FROM (SELECT
  CAST(get_json_object(parameters, '$.seed') AS BIGINT) AS s, spillway_sql_depth(parameters) AS d));

-- the column of a key in each row: the low 63 bits of factor * key, folded
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_columns(key BIGINT, factors ARRAY<BIGINT>, width INT) RETURNS ARRAY<BIGINT>
RETURN transform(factors, factor -> ((((factor * (key & 4294967295L)) & 4294967295L)
  + ((shiftrightunsigned(factor * (key & 4294967295L), 32)
      + ((factor * shiftrightunsigned(key, 32)) & 4294967295L)) & 4294967295L)) & 2147483647L) % width);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_at(counters ARRAY<BIGINT>, columns ARRAY<BIGINT>, width INT) RETURNS ARRAY<BIGINT>
RETURN transform(columns, (place, row) -> element_at(counters, CAST(row * width + place + 1 AS INT)));

-- the counters that a key touches, one a row of the table
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_touched(counters ARRAY<BIGINT>, parameters STRING, key BIGINT) RETURNS ARRAY<BIGINT>
RETURN (SELECT spillway_sql_at(c, places, w) FROM (SELECT c, w, spillway_sql_columns(k, f, w) AS places FROM (
  SELECT counters AS c, key AS k, spillway_sql_factors(parameters) AS f, spillway_sql_width(parameters) AS w)));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_median(numbers ARRAY<DOUBLE>) RETURNS DOUBLE
RETURN (element_at(sort_array(numbers), CAST((size(numbers) + 1) DIV 2 AS INT))
  + element_at(sort_array(numbers), CAST(size(numbers) DIV 2 + 1 AS INT))) / 2;

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_residues(touched ARRAY<BIGINT>, rows BIGINT, width INT) RETURNS ARRAY<DOUBLE>
RETURN transform(touched, c -> c - (rows - c) / (width - 1D));

-- how far the least of d counters lies above the truth in at most 5 of 100 cases: what the table itself shows
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_noise(counters ARRAY<BIGINT>, parameters STRING) RETURNS BIGINT
RETURN element_at(sort_array(counters), CAST(ceil(size(counters)
  * (1 - power(0.05D, 1.0D / spillway_sql_depth(parameters)))) AS INT));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_within(value DOUBLE, least BIGINT, noise BIGINT, rows BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN named_struct('value', least(greatest(value, CAST(least - noise AS DOUBLE), 0D), CAST(least AS DOUBLE)),
  'low', CAST(greatest(least - noise, 0L) AS DOUBLE), 'high', CAST(least AS DOUBLE), 'rows', rows,
  'note', 'cmm_mean within cm, 95 % confidence');

-- the mean-corrected median of the rows (4.2.2), between the least counter and that less its noise
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_frequency(counters ARRAY<BIGINT>, parameters STRING, key BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN (SELECT spillway_sql_within(spillway_sql_median(left), array_min(hit), noise, n) FROM (
  SELECT spillway_sql_residues(hit, n, w) AS left, hit, noise, n FROM (
    SELECT spillway_sql_touched(counters, parameters, key) AS hit, spillway_sql_noise(counters, parameters) AS noise,
      spillway_sql_rows(counters, parameters) AS n, spillway_sql_width(parameters) AS w)));

-- the standard deviation of a median of d rows, in those of one
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_deviation(depth INT) RETURNS DOUBLE
RETURN element_at(array(1.0D, 0.66983D, 0.53557D, 0.45874D, 0.40756D, 0.37035D, 0.34176D, 0.3189D, 0.30008D, 0.28424D, 0.27067D, 0.25887D, 0.24849D, 0.23926D, 0.231D, 0.22353D, 0.21674D, 0.21054D, 0.20484D, 0.19958D, 0.1947D, 0.19017D, 0.18594D, 0.18197D, 0.17826D, 0.17476D, 0.17146D, 0.16833D, 0.16538D, 0.16257D, 0.1599D, 0.15736D), CAST((depth - 1) DIV 2 + 1 AS INT));

-- how far a median of d rows deviates (95 %), as a share of sqrt of a sum of squares of products
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_reach(parameters STRING) RETURNS DOUBLE
RETURN 1.959964D / sqrt(spillway_sql_width(parameters) - 1D) * spillway_sql_deviation(spillway_sql_depth(parameters));

-- sum_j A_j B_j of each row, mean corrected (4.3.1)
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_products(one ARRAY<BIGINT>, other ARRAY<BIGINT>, width INT, depth INT, of_one BIGINT, of_other BIGINT)
RETURNS ARRAY<DOUBLE>
RETURN transform(sequence(0, depth - 1), row -> (width * aggregate(
    zip_with(slice(one, row * width + 1, width), slice(other, row * width + 1, width), (x, y) -> CAST(x AS DOUBLE) * y),
    0D, (sum, x) -> sum + x) - CAST(of_one AS DOUBLE) * of_other) / (width - 1D));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_size(one ARRAY<BIGINT>, other ARRAY<BIGINT>, parameters STRING) RETURNS DOUBLE
RETURN (SELECT greatest(0D, spillway_sql_median(products)) FROM (
  SELECT spillway_sql_products(a, b, w, d, n, m) AS products FROM (
    SELECT one AS a, other AS b, spillway_sql_width(parameters) AS w, spillway_sql_depth(parameters) AS d,
      spillway_sql_rows(one, parameters) AS n, spillway_sql_rows(other, parameters) AS m)));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_shared(size DOUBLE, reach DOUBLE, rows BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN named_struct('value', size, 'low', size / (1 + reach), 'high', size / greatest(1 - reach, 1E-300D), 'rows', rows,
  'note', 'cmm, 95 % confidence');

-- ordered pairs of rows with equal keys, each row with itself included (Lemma 4)
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_self_join(counters ARRAY<BIGINT>, parameters STRING)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN spillway_sql_shared(spillway_sql_size(counters, counters, parameters),
  sqrt(2D) * spillway_sql_reach(parameters), spillway_sql_rows(counters, parameters));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_spread(size DOUBLE, reach DOUBLE, rows BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN named_struct('value', size, 'low', greatest(size - reach, 0D), 'high', size + reach, 'rows', rows,
  'note', 'cmm, 95 % confidence');

-- pairs of rows of both with equal keys; both of the same types, parameters and seed
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_join(one ARRAY<BIGINT>, other ARRAY<BIGINT>, parameters STRING)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN spillway_sql_spread(spillway_sql_size(one, other, parameters),
  spillway_sql_reach(parameters) * sqrt(
    spillway_sql_size(one, one, parameters) * spillway_sql_size(other, other, parameters)
      + power(spillway_sql_size(one, other, parameters), 2)),
  spillway_sql_rows(one, parameters) + spillway_sql_rows(other, parameters));
