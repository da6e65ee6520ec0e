//! The listener for time series, over plain HTTP on TCP.

mod access;
mod clocks;
mod crowd;
mod endpoint;
mod entry_influxql;
mod entry_line;
mod fields;
mod health;
mod input;
mod queries;
mod writes;
mod zero;
