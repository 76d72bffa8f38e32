-- Functions to query stored sketches with SQL only: in spark-sql, a Thrift server, or an SQL editor.
--
--     spark-sql -i functions.sql
--     SELECT spillway_sql_frequency(spillway_sql_sum(collect_list(counters)), any_value(parameters),
--                                   spillway_sql_key_of_string('JFK', 1)).value
--     FROM delta.`lake/sketches` WHERE stream = 'weather' AND kind = 'count_min' AND name = 'origin'
--
-- Without TEMPORARY, the functions are stored in a catalog. They take the columns `counters` and `parameters` of the
-- tables `sketches` and `daily_sketches`, for kind count_min. Counters of equal parameters can be added up. Not
-- supported: the better estimator (cmm_order) of Spillway's own functions, top keys, near-duplicates, membership. The
-- kinds quantiles and distinct do not need these functions: use Spark's kll_sketch_* and hll_sketch_* on `payload`.
--
-- A key is the xxhash64 of a header and the values. The header is a hash of the types and the seed, XOR a bit mask of
-- the attributes that are null. A key of two attributes:
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

-- the sum of tables with equal parameters: spillway_sql_sum(collect_list(counters))
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_sum(tables ARRAY<ARRAY<BIGINT>>) RETURNS ARRAY<BIGINT>
RETURN aggregate(tables, transform(tables[0], x -> 0L), (sum, one) -> zip_with(sum, one, (x, y) -> x + y));

-- the number of sketched rows: the sum of one row of the table
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_first_row(counters ARRAY<BIGINT>, width INT) RETURNS BIGINT
RETURN aggregate(slice(counters, 1, width), 0L, (sum, x) -> sum + x);

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_rows(counters ARRAY<BIGINT>, parameters STRING) RETURNS BIGINT
RETURN (SELECT spillway_sql_first_row(c, w) FROM (SELECT counters AS c, spillway_sql_width(parameters) AS w));

-- java.util.Random, from which Spark's count_min_sketch draws its hashes. Products are split, so that none overflows.
-- (Spark does not allow SQL functions in a lambda, so the expression is written out twice.)
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

-- the counters that a key touches, one per row of the table
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_touched(counters ARRAY<BIGINT>, parameters STRING, key BIGINT) RETURNS ARRAY<BIGINT>
RETURN (SELECT spillway_sql_at(c, places, w) FROM (SELECT c, w, spillway_sql_columns(k, f, w) AS places FROM (
  SELECT counters AS c, key AS k, spillway_sql_factors(parameters) AS f, spillway_sql_width(parameters) AS w)));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_median(numbers ARRAY<DOUBLE>) RETURNS DOUBLE
RETURN (element_at(sort_array(numbers), CAST((size(numbers) + 1) DIV 2 AS INT))
  + element_at(sort_array(numbers), CAST(size(numbers) DIV 2 + 1 AS INT))) / 2;

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_residues(touched ARRAY<BIGINT>, rows BIGINT, width INT) RETURNS ARRAY<DOUBLE>
RETURN transform(touched, c -> c - (rows - c) / (width - 1D));

-- the 95 % quantile of the noise of the least of d counters, from the counters of the table
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_noise(counters ARRAY<BIGINT>, parameters STRING) RETURNS BIGINT
RETURN element_at(sort_array(counters), CAST(ceil(size(counters)
  * (1 - power(0.05D, 1.0D / spillway_sql_depth(parameters)))) AS INT));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_within(value DOUBLE, least BIGINT, noise BIGINT, rows BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN named_struct('value', least(greatest(value, CAST(least - noise AS DOUBLE), 0D), CAST(least AS DOUBLE)),
  'low', CAST(greatest(least - noise, 0L) AS DOUBLE), 'high', CAST(least AS DOUBLE), 'rows', rows,
  'note', 'cmm_mean within cm, 95 % confidence');

-- the mean-corrected median of the rows (Deng 2007, 4.2.2), clamped between the least counter minus its noise and the
-- least counter
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_frequency(counters ARRAY<BIGINT>, parameters STRING, key BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN (SELECT spillway_sql_within(spillway_sql_median(left), array_min(hit), noise, n) FROM (
  SELECT spillway_sql_residues(hit, n, w) AS left, hit, noise, n FROM (
    SELECT spillway_sql_touched(counters, parameters, key) AS hit, spillway_sql_noise(counters, parameters) AS noise,
      spillway_sql_rows(counters, parameters) AS n, spillway_sql_width(parameters) AS w)));

-- the standard deviation of the median of d rows, relative to that of one row
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_deviation(depth INT) RETURNS DOUBLE
RETURN element_at(array(1.0D, 0.66983D, 0.53557D, 0.45874D, 0.40756D, 0.37035D, 0.34176D, 0.3189D, 0.30008D, 0.28424D, 0.27067D, 0.25887D, 0.24849D, 0.23926D, 0.231D, 0.22353D, 0.21674D, 0.21054D, 0.20484D, 0.19958D, 0.1947D, 0.19017D, 0.18594D, 0.18197D, 0.17826D, 0.17476D, 0.17146D, 0.16833D, 0.16538D, 0.16257D, 0.1599D, 0.15736D), CAST((depth - 1) DIV 2 + 1 AS INT));

-- the half-width of the 95 % interval of the median of d rows, if the variance of a row is 1 / (w - 1)
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_reach(parameters STRING) RETURNS DOUBLE
RETURN 1.959964D / sqrt(spillway_sql_width(parameters) - 1D) * spillway_sql_deviation(spillway_sql_depth(parameters));

-- sum_j A_j B_j of each row, mean-corrected (Deng 2007, 4.3.1)
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

-- ordered pairs of rows with equal keys, including each row with itself (Deng 2007, Lemma 4)
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_self_join(counters ARRAY<BIGINT>, parameters STRING)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN spillway_sql_shared(spillway_sql_size(counters, counters, parameters),
  sqrt(2D) * spillway_sql_reach(parameters), spillway_sql_rows(counters, parameters));

CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_spread(size DOUBLE, reach DOUBLE, rows BIGINT)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN named_struct('value', size, 'low', greatest(size - reach, 0D), 'high', size + reach, 'rows', rows,
  'note', 'cmm, 95 % confidence');

-- pairs of rows, one of each sketch, with equal keys. Both must have the same types, parameters and seed
CREATE OR REPLACE TEMPORARY FUNCTION spillway_sql_join(one ARRAY<BIGINT>, other ARRAY<BIGINT>, parameters STRING)
RETURNS STRUCT<value: DOUBLE, low: DOUBLE, high: DOUBLE, rows: BIGINT, note: STRING>
RETURN spillway_sql_spread(spillway_sql_size(one, other, parameters),
  spillway_sql_reach(parameters) * sqrt(
    spillway_sql_size(one, one, parameters) * spillway_sql_size(other, other, parameters)
      + power(spillway_sql_size(one, other, parameters), 2)),
  spillway_sql_rows(one, parameters) + spillway_sql_rows(other, parameters));
