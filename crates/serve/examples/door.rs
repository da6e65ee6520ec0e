//! A RESP listener over a store in memory, on 127.0.0.1 and the given port (6390): the cost of the listener alone, for
//! profiles and comparisons with redis-server. Stops with its process.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::keyspace::Keyspace;
use engine::kv::Memory;
use serve::resp::{Server, Service, Settings};
use tokio::net::TcpListener;

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).map_or(6390, |port| port.parse().expect("a port"));
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    let wall = move || u64::try_from(wall()).unwrap_or(u64::MAX);
    let keyspace =
        Keyspace::open(Arc::new(Memory::default()), Box::new(wall), 1).expect("the store is empty");
    let settings = Settings { port, ..Settings::default() };
    let service = Arc::new(Service::new(settings, Arc::new(keyspace), Arc::new(())));
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        Server::new(service, None).run(listener, std::future::pending()).await;
        Ok(())
    })
}
