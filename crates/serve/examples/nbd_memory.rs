//! An NBD server over devices in memory, on 127.0.0.1 and the given port (10809): for trying clients, and for the cost of
//! the server alone. Its devices are `disk` (256 MiB) and `huge` (64 TiB). Stops with its process.

use std::sync::Arc;

use engine::block::Memory;
use serve::nbd::{Server, Service, Settings};
use tokio::net::TcpListener;

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).map_or(10809, |port| port.parse().expect("a port"));
    let devices = Memory::default().with("disk", 256 << 20).with("huge", 64 << 40);
    let service = Arc::new(Service::new(Settings::default(), Arc::new(devices), [0; 16]));
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        Server::new(service, None).run(listener, std::future::pending()).await;
        Ok(())
    })
}
