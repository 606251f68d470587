-- The tables of a depot, for DataFusion, started in the directory of the depot: datafusion-cli -r .../sql/datafusion.sql
CREATE EXTERNAL TABLE hist STORED AS PARQUET PARTITIONED BY (host, date) LOCATION 'hist/';
CREATE EXTERNAL TABLE spans STORED AS PARQUET PARTITIONED BY (host, date) LOCATION 'spans/';
CREATE EXTERNAL TABLE disks STORED AS PARQUET PARTITIONED BY (host, date) LOCATION 'disks/';
CREATE EXTERNAL TABLE figures STORED AS PARQUET PARTITIONED BY (host, date) LOCATION 'figures/';
