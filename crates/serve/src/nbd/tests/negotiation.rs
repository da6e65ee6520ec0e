//! Connections before they have a device.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::pki_types::ServerName;

use super::*;
use crate::tls::{TlsClientFiles, TlsFiles};

#[tokio::test]
async fn a_client_without_a_device_is_closed_in_time() {
    let handshake_timeout = std::time::Duration::from_millis(1);
    let settings = Settings { handshake_timeout, ..Settings::default() };
    let stage = Stage::of(Arc::new(Memory::default().with("a", SIZE)), settings);
    let mut silent = stage.connect().await;
    let mut all = Vec::new();
    silent.read_to_end(&mut all).await.expect("it is closed");
    assert_eq!(all.len(), GREETING_BYTES);
}

/// With an authority for clients, a client also shows its certificate.
#[tokio::test]
async fn starttls_secures_the_rest_of_the_connection() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("room for a file");
        dir.path().join(name)
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("random numbers");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let ca = file("ca.pem", &issuer.pem());
    let certify = |name: &str| {
        let key = KeyPair::generate().expect("random numbers");
        let params = CertificateParams::new(vec![name.into()]).expect("a name");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let cert = file(&format!("{name}.pem"), &certificate.pem());
        (cert, file(&format!("{name}.key"), &key.serialize_pem()))
    };
    let (cert, key) = certify("localhost");
    let ours = certify("client");
    for (client_ca, ours, is_served) in
        [(None, None, true), (Some(ca.clone()), None, false), (Some(ca.clone()), Some(ours), true)]
    {
        let files = TlsFiles { cert: cert.clone(), key: key.clone(), client_ca };
        let tls = Arc::new(Tls::new(files.read().expect("its own files")));
        let devices = Arc::new(Memory::default().with("a", SIZE));
        let stage = Stage::with_tls(devices, Settings::default(), Some(tls));
        let mut stream = stage.connect().await;
        stream.read_exact(&mut [0; GREETING_BYTES]).await.expect("a greeting");
        stream.write_u32((FIXED_NEWSTYLE | NO_ZEROES).into()).await.expect("it reads");
        let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
        client.negotiate(OptionCode::StartTls, b"").await;
        let connector = TlsClientFiles { ca: ca.clone(), ours }.read().expect("its own files");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = connector.connect(name, client.stream).await;
        // With TLS 1.3 a client hears of its missing certificate after its handshake.
        let mut stream = stream.expect("the server's certificate is good");
        if !is_served {
            assert!(stream.read_u8().await.is_err());
            continue;
        }
        let mut client = Client { stream, headers: Headers::Compact, cookie: 0, flags: 0 };
        client.negotiate(OptionCode::Go, &[0; 6]).await;
        client.write(5, &[7; 100_000]).await;
        assert_eq!(client.read(5, 100_000).await, [7; 100_000]);
        client.send(Command::Disconnect, 0, (0, 0), b"").await;
        assert!(client.is_closed().await, "it ends as TLS demands");
    }
}
