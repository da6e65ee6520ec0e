//! Sensors and those who look at them: InfluxDB's protocols over HTTP.

pub mod influxql;
pub mod line;
mod time;
