//! Clients with TLS, and some that lack it.

use std::fs;
use std::io::{BufReader, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::kv::Memory;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serve::resp::Settings;
use serve::tls::{Tls, TlsFiles};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::endpoint::{Client, Endpoint};
use crate::set;

/// An authority, and the files with its certificates.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("random numbers");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let authority = Self { issuer, dir: TempDir::new().expect("a directory") };
        authority.file("ca.pem", &authority.issuer.pem());
        authority
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).expect("room for a file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).expect("ours");
        self.path(name)
    }

    /// A new certificate for `whom` and its key, in PEM.
    fn certify(&self, whom: &str) -> (String, String) {
        let key = KeyPair::generate().expect("random numbers");
        let params = CertificateParams::new(vec![whom.into()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// The files of a server on this machine.
    fn server(&self) -> TlsFiles {
        let (cert, key) = self.certify("localhost");
        TlsFiles {
            cert: self.file("cert.pem", &cert),
            key: self.file("key.pem", &key),
            client_ca: None,
        }
    }
}

fn endpoint(files: &TlsFiles, settings: Settings) -> (Endpoint, Arc<Tls>) {
    let tls = Arc::new(Tls::new(files.read().expect("good files")));
    let store = Arc::new(Memory::default());
    (Endpoint::with_tls(store, settings, Some(Arc::clone(&tls))), tls)
}

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

/// A client that trusts `authority`, with a certificate if one is given.
fn connect(
    endpoint: &Endpoint,
    authority: &Authority,
    shown: Option<&(String, String)>,
) -> TlsClient {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.issuer.pem())).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of the provider")
        .with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(vec![certificate(cert)], key).expect("they match")
        }
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    let stream = TcpStream::connect(endpoint.address).expect("a listener");
    Client(BufReader::new(StreamOwned::new(connection, stream)))
}

/// Whether the handshake succeeds.
fn agree(client: &mut TlsClient) -> bool {
    use std::io::{BufRead, Write};
    let mut line = String::new();
    let asked = client.0.get_mut().write_all(b"ping\r\n");
    asked.and_then(|()| client.0.read_line(&mut line)).is_ok() && line == "+PONG\r\n"
}

#[test]
fn a_client_is_served_and_told_where_the_replies_end() {
    let authority = Authority::new("line");
    let (endpoint, _) = endpoint(&authority.server(), Settings::default());
    let mut client = connect(&endpoint, &authority, None);
    let value = vec![b'x'; 1 << 20];
    client.send([set("k", &value), b"get k\r\nquit\r\n".to_vec()].concat());
    assert_eq!([client.line(), client.line()], ["+OK", "$1048576"]);
    let mut read = vec![0; value.len() + 2];
    client.0.read_exact(&mut read).expect("the whole reply");
    assert!(read.starts_with(&value));
    assert_eq!(client.line(), "+OK");
    // A stream that ends without TLS's close_notify gives a read error.
    assert_eq!(client.line(), "");
}

#[test]
fn a_stop_says_goodbye() {
    let authority = Authority::new("line");
    let (mut endpoint, _) = endpoint(&authority.server(), Settings::default());
    let mut client = connect(&endpoint, &authority, None);
    assert_eq!(client.ask("set k v"), "+OK");
    endpoint.wait_until_stopped();
    assert_eq!(client.line(), "");
}

#[test]
fn a_client_without_tls_is_told_so() {
    let authority = Authority::new("line");
    let (endpoint, _) = endpoint(&authority.server(), Settings::default());
    let mut plain = endpoint.connect();
    plain.send(set("k", &vec![b'x'; 100_000]));
    assert_eq!(plain.line(), "-ERR this port speaks TLS only, as redis-cli --tls does");
    assert_eq!(plain.line(), "");
    let mut noise = endpoint.connect();
    noise.send(b"\x16\x03\x01\x00\x05hello");
    // The server sends a TLS alert, then closes.
    noise.0.read_to_end(&mut Vec::new()).expect("a clean end");
    assert_eq!(connect(&endpoint, &authority, None).ask("exists k"), ":0");
}

#[test]
fn who_does_not_shake_hands_is_cut_off_in_time() {
    let authority = Authority::new("line");
    let settings = Settings { auth_timeout: Duration::from_millis(50), ..Settings::default() };
    let (endpoint, _) = endpoint(&authority.server(), settings);
    let mut silent = endpoint.connect();
    assert_eq!(silent.line(), "");
}

#[test]
fn handshakes_count_as_connections() {
    let authority = Authority::new("line");
    let settings = Settings { clients_max: 1, ..Settings::default() };
    let (endpoint, _) = endpoint(&authority.server(), settings);
    let mut silent = endpoint.connect();
    let mut known = connect(&endpoint, &authority, None);
    assert_eq!(known.ask("exists k"), ":0");
    assert_eq!(silent.line(), "", "it gave way");
    assert_eq!(endpoint.service.stats.shed.get(), 1);
    let mut refused = endpoint.connect();
    assert_eq!(refused.line(), "", "no plain answer on a port that speaks TLS");
    assert_eq!(endpoint.service.stats.rejected.get(), 1);
}

#[test]
fn new_connections_get_new_certificates_and_old_ones_go_on() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (endpoint, tls) = endpoint(&old.server(), Settings::default());
    let mut client = connect(&endpoint, &old, None);
    assert!(agree(&mut client));
    assert!(!agree(&mut connect(&endpoint, &new, None)));
    tls.replace(new.server().read().expect("good files"));
    assert!(agree(&mut connect(&endpoint, &new, None)));
    assert!(!agree(&mut connect(&endpoint, &old, None)));
    assert!(agree(&mut client));
}

#[test]
fn where_clients_have_certificates_others_are_turned_away() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let files = TlsFiles { client_ca: Some(ours.path("ca.pem")), ..ours.server() };
    let (endpoint, _) = endpoint(&files, Settings::default());
    assert!(agree(&mut connect(&endpoint, &ours, Some(&ours.certify("sailor")))));
    assert!(!agree(&mut connect(&endpoint, &ours, Some(&theirs.certify("sailor")))));
    assert!(!agree(&mut connect(&endpoint, &ours, None)));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new("line");
    let good = authority.server();
    let missing = authority.path("missing.pem");
    let empty = authority.file("empty.pem", "");
    let cut = authority.file("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let odd =
        authority.file("odd.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let other_key = authority.file("other.pem", &authority.certify("localhost").1);
    let with = |change: fn(&mut TlsFiles, PathBuf), path: &PathBuf| {
        let mut files = good.clone();
        change(&mut files, path.clone());
        files.read().err().map(|error| error.to_string()).unwrap_or_default()
    };
    let cert = |path: &PathBuf| with(|files, path| files.cert = path, path);
    let key = |path: &PathBuf| with(|files, path| files.key = path, path);
    let client_ca = |path: &PathBuf| with(|files, path| files.client_ca = Some(path), path);
    let cases = [
        (cert(&missing), "missing.pem: there is no such file"),
        (cert(&empty), "empty.pem: there is no certificate in it (PEM)"),
        (cert(&cut), "cut.pem: it is not PEM: missing section end marker"),
        (cert(&odd), "odd.pem: invalid peer certificate: BadEncoding"),
        (cert(&good.key), "key.pem: there is no certificate in it (PEM)"),
        (key(&missing), "missing.pem: there is no such file"),
        (key(&good.cert), "cert.pem: there is no private key in it (PEM, not encrypted)"),
        (key(&other_key), "other.pem: it is not the key of the first certificate in "),
        (client_ca(&empty), "empty.pem: there is no certificate in it (PEM)"),
        (client_ca(&odd), "odd.pem: invalid peer certificate: BadEncoding"),
    ];
    for (told, expected) in cases {
        assert!(told.contains(expected), "{told:?} is not about {expected:?}");
    }
}

#[test]
fn a_key_that_everybody_can_read_is_noticed() {
    let authority = Authority::new("line");
    let files = authority.server();
    assert!(!files.read().expect("good files").key_is_public);
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).expect("ours");
    assert!(files.read().expect("good files").key_is_public);
}
