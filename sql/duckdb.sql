-- The tables of a depot, for DuckDB, started in the directory of the depot: duckdb -init .../sql/duckdb.sql
-- By day or by hour, for all hosts alike. A table of which the depot has no file yet is an error of its own line only.
SET TimeZone = 'UTC';
CREATE OR REPLACE VIEW hist AS SELECT * FROM read_parquet('hist/**/*.parquet', hive_partitioning = true, hive_types = {'host': VARCHAR, 'date': DATE});
CREATE OR REPLACE VIEW spans AS SELECT * FROM read_parquet('spans/**/*.parquet', hive_partitioning = true, hive_types = {'host': VARCHAR, 'date': DATE});
CREATE OR REPLACE VIEW disks AS SELECT * FROM read_parquet('disks/**/*.parquet', hive_partitioning = true, hive_types = {'host': VARCHAR, 'date': DATE});
CREATE OR REPLACE VIEW figures AS SELECT * FROM read_parquet('figures/**/*.parquet', hive_partitioning = true, hive_types = {'host': VARCHAR, 'date': DATE});
