//! Sensors write readings, a reader asks for those of an hour.

use plimsoll::series::{Batch, Database, Selector, Span, Store, Value};
use plimsoll::volumes::{Volume, contract};

const SECOND: i64 = 1_000_000_000;

fn main() -> Result<(), plimsoll::Error> {
    let dir = std::env::temp_dir().join(format!("plimsoll-sensors-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a new directory can be made");
    let store =
        Store::builder().volume(Volume::directory("a", &dir, contract("unlimited")?)).open()?;
    store.create_database(Database { name: "plant".into(), keep: None })?;
    let mut batch = Batch::new("plant");
    for second in 0..3600 {
        batch.begin("boiler");
        batch.tag("site", "north");
        batch.field("celsius", Value::Float(70.0 + f64::from(second % 60) / 10.0));
        batch.end(i64::from(second) * SECOND).expect("a row that fits");
    }
    println!("{} points are stored", store.write(batch)?.points);
    for series in store.find(&Selector::all("plant"))? {
        let mut highest = f64::MIN;
        for points in store.points(series.id, Span { from: 0, to: 3600 * SECOND }) {
            highest =
                points?.iter().filter_map(|(_, value)| value.as_f64()).fold(highest, f64::max);
        }
        println!("{} of {}: at most {highest} degrees", series.field, series.measurement);
    }
    store.close()?;
    std::fs::remove_dir_all(dir).expect("it is ours");
    Ok(())
}
