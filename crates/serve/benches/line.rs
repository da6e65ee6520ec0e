//! The parsing speed of line protocol: rows of a DevOps load, with ten integers and ten tags each.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::series::{self, Batch};
use serve::http::line::{Decoder, Precision, Value, split};

const ROWS: u64 = 5000;
const FIELDS: u64 = 10;

fn rows() -> String {
    let mut text = String::new();
    for row in 0..ROWS {
        let host = row % 100;
        text.push_str(&format!(
            "cpu,hostname=host_{host},region=eu-west-1,datacenter=eu-west-1b,rack=67,os=Ubuntu16.10,\
             arch=x64,team=NYC,service=7,service_version=0,service_environment=production "
        ));
        let fields = [
            "user",
            "system",
            "idle",
            "nice",
            "iowait",
            "irq",
            "softirq",
            "steal",
            "guest",
            "guest_nice",
        ];
        let fields = fields.iter().zip(row..).map(|(name, n)| format!("usage_{name}={}i", n % 101));
        text.push_str(&fields.collect::<Vec<_>>().join(","));
        text.push_str(&format!(" {}\n", 1_451_606_400_000_000_000 + row * 10_000_000_000));
    }
    text
}

fn lines(criterion: &mut Criterion) {
    let text = rows();
    let mut group = criterion.benchmark_group("line");
    group.throughput(Throughput::Elements(ROWS * FIELDS)).sample_size(20);
    group.bench_function("fields read", |bench| {
        bench.iter(|| {
            let mut decoder = Decoder::new(Precision::Nanoseconds, 1 << 20);
            decoder.push(text.as_bytes());
            let mut sum = 0;
            while let Some(line) = decoder.next() {
                for field in line.expect("a good line").fields() {
                    if let Value::Integer(value) = field.value {
                        sum += value;
                    }
                }
            }
            sum
        });
    });
    group.bench_function("fields into a batch", |bench| {
        bench.iter(|| {
            let mut decoder = Decoder::new(Precision::Nanoseconds, 1 << 20);
            decoder.push(text.as_bytes());
            let mut batch = Batch::new("db");
            while let Some(line) = decoder.next() {
                let line = line.expect("a good line");
                let (measurement, tags) = split(line.head()).expect("a good head");
                batch.begin(&measurement);
                for tag in tags {
                    let (key, value) = tag.expect("a good tag");
                    batch.tag(&key, &value);
                }
                for field in line.fields() {
                    if let Value::Integer(value) = field.value {
                        batch.field(&field.name, series::Value::Integer(value));
                    }
                }
                batch.end(line.timestamp().unwrap_or_default()).expect("a row");
            }
            batch.len()
        });
    });
    group.finish();
}

criterion_group!(benches, lines);
criterion_main!(benches);
