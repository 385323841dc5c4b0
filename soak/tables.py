"""The tables of a journal; docs/soak.md explains their columns."""

VERSION = 1
TABLES = """
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE segments (segment INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, how TEXT);
CREATE TABLE epochs (
    scenario TEXT, epoch INTEGER, segment INTEGER NOT NULL, worker INTEGER NOT NULL, started REAL NOT NULL,
    seconds REAL NOT NULL, oracle_seconds REAL NOT NULL, verdict TEXT NOT NULL, digest TEXT NOT NULL,
    counts TEXT NOT NULL, PRIMARY KEY (scenario, epoch)) WITHOUT ROWID;
CREATE TABLE evidence (
    scenario TEXT, epoch INTEGER, test TEXT, log_e REAL NOT NULL, samples INTEGER NOT NULL, counts TEXT NOT NULL,
    PRIMARY KEY (scenario, epoch, test)) WITHOUT ROWID;
CREATE TABLE histograms (
    scenario TEXT, epoch INTEGER, name TEXT, bins TEXT NOT NULL, PRIMARY KEY (scenario, epoch, name)) WITHOUT ROWID;
CREATE TABLE laws (test TEXT, context TEXT, law TEXT NOT NULL, slack REAL NOT NULL, PRIMARY KEY (test, context))
    WITHOUT ROWID;
CREATE TABLE gauges (time REAL NOT NULL, worker INTEGER NOT NULL, name TEXT NOT NULL, value REAL NOT NULL);
CREATE INDEX gauges_by_name ON gauges (name, time);
CREATE TABLE violations (
    scenario TEXT, epoch INTEGER, place INTEGER, time REAL NOT NULL, oracle TEXT NOT NULL, detail TEXT NOT NULL,
    bundle TEXT NOT NULL, PRIMARY KEY (scenario, epoch, place)) WITHOUT ROWID;
CREATE INDEX violations_by_time ON violations (time, scenario, epoch, place);
"""
