//! The real server over TLS, on loopback.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serve::nbd::{Server, Service, Settings};
use serve::tls::{Tls, TlsClientFiles, TlsFiles};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;
use crate::command::block::attach::client::{self, Secure};

/// An authority, and the files with its certificates.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("random numbers");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        Self { issuer, dir: TempDir::new().expect("a directory") }
    }

    fn file(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("room for a file");
        path
    }

    fn ca(&self) -> std::path::PathBuf {
        self.file("ca.pem", &self.issuer.pem())
    }

    /// The files of a new certificate for `whom` and of its key.
    fn certify(&self, whom: &str) -> (std::path::PathBuf, std::path::PathBuf) {
        let key = KeyPair::generate().expect("random numbers");
        let params = CertificateParams::new(vec![whom.into()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let cert = self.file(&format!("{whom}.pem"), &certificate.pem());
        (cert, self.file(&format!("{whom}.key"), &key.serialize_pem()))
    }
}

/// A server at an address, dialed with or without TLS.
struct Loopback {
    address: String,
    secure: Option<Secure>,
}

impl Around for Loopback {
    async fn dial(&mut self) -> Result<Connection, Failure> {
        let stream = client::dial(&self.address).await?;
        client::negotiate(stream, "d", &[7; 16], None, self.secure.as_ref()).await
    }

    fn resize(&mut self, _: u64) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Starts a server over a device `d` in memory; returns its address.
async fn start(tls: Option<TlsFiles>) -> String {
    let tls = tls.map(|files| Arc::new(Tls::new(files.read().expect("its own files"))));
    let devices = Arc::new(Memory::default().with("d", EXPORT.size));
    let service = Arc::new(Service::new(Settings::default(), devices, [9; 16]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(Server::new(service, tls).run(listener, std::future::pending()));
    address
}

#[tokio::test]
async fn requests_pass_over_tls_to_a_server_that_asks_for_a_certificate() {
    let authority = Authority::new();
    let (cert, key) = authority.certify("127.0.0.1");
    let address = start(Some(TlsFiles { cert, key, client_ca: Some(authority.ca()) })).await;
    let files = TlsClientFiles { ca: authority.ca(), ours: Some(authority.certify("client")) };
    let client = files.client().expect("its own files");
    let secure = Some(Secure { client, host: "127.0.0.1".into() });
    let mut server = Loopback { address, secure };
    let first = server.dial().await.unwrap_or_else(|failure| panic!("{failure}"));
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let link = Link::new(ours, server, Clock::real(), first.export, None);
    let random = Xoshiro256PlusPlus::seed_from_u64(1);
    let (ended, ()) = tokio::join!(link.run(Some(first)), kernel(theirs, random, 600, 16));
    ended.expect("detached");
}

#[tokio::test]
async fn a_connection_that_cannot_be_trusted_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (cert, key) = authority.certify("127.0.0.1");
    let secured = start(Some(TlsFiles { cert, key, client_ca: Some(authority.ca()) })).await;
    let plain = start(None).await;
    let secure = |of: &Authority, ours, host: &str| {
        let client = TlsClientFiles { ca: of.ca(), ours }.client().expect("its own files");
        Some(Secure { client, host: host.into() })
    };
    let ours = || Some(authority.certify("client"));
    for (address, secure, wanted) in [
        (&secured, None, "over TLS only"),
        (&plain, secure(&authority, ours(), "127.0.0.1"), "no connections over TLS"),
        (&secured, secure(&other, ours(), "127.0.0.1"), "TLS: invalid peer certificate"),
        (&secured, secure(&authority, ours(), "localhost"), "TLS: invalid peer certificate"),
        (&secured, secure(&authority, None, "127.0.0.1"), "CertificateRequired"),
        (&secured, secure(&authority, Some(other.certify("client")), "127.0.0.1"), "alert"),
    ] {
        let dialed = Loopback { address: address.clone(), secure }.dial().await;
        let told = dialed.err().map(|failure| failure.to_string()).unwrap_or_default();
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}
