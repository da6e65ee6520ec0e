//! TLS for clients: certificate and key from PEM files, which a reload reads again.
//!
//! Connections keep their certificates; those opened after a reload use the new files. Clients need certificates only
//! if `client_ca` is given; the password is required in any case.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{self, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The paths of certificates and keys, in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The server's certificate, followed by its chain.
    pub cert: PathBuf,
    /// The key of the first certificate: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
    /// The authorities of clients' certificates. If given, clients without such a certificate are rejected; otherwise
    /// certificates are not requested.
    pub client_ca: Option<PathBuf>,
}

/// The authorities of a server that this program connects to, and the client's certificate, in PEM.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsClientFiles {
    /// The authorities of the server's certificate.
    pub ca: PathBuf,
    /// The client's certificate and its key, if the server requires one.
    pub ours: Option<(PathBuf, PathBuf)>,
}

/// The contents of [`TlsClientFiles`].
pub struct TlsClient(TlsConnector);

impl TlsClient {
    /// Secures a connection to `host`, a DNS name or an IP address that the server's certificate must have.
    ///
    /// # Errors
    /// `InvalidInput`: `host` is neither. `InvalidData`: the certificate is not that of `host`, or no authority of ours signed
    /// it. Else those of the connection. A server may reject the client's certificate later, at the first read.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.0.connect(name, stream).await
    }
}

impl TlsClientFiles {
    /// Reads the files, and checks that key and certificate match. Later changes of the files have no effect on it.
    ///
    /// # Errors
    /// The first invalid file.
    pub fn client(&self) -> Result<TlsClient, TlsError> {
        self.read().map(TlsClient)
    }

    /// As [`Self::client`].
    ///
    /// # Errors
    /// As for [`Self::client`].
    pub(crate) fn read(&self) -> Result<TlsConnector, TlsError> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider knows the versions it was made for")
            .with_root_certificates(authorities(&self.ca)?);
        let config = match &self.ours {
            None => config.with_no_client_auth(),
            Some((cert, key)) => config
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|error| wrong(key, error))?,
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// Why certificates cannot be used: correct the file and read again.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}", path = path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: String,
}

/// The certificates that a listener uses now.
pub struct Tls(RwLock<Certificates>);

/// The contents of [`TlsFiles`].
pub struct Certificates {
    acceptor: TlsAcceptor,
    /// Whether other users of this machine can read the key.
    pub key_is_public: bool,
}

impl Tls {
    /// Uses these certificates until they are [replaced](Self::replace).
    #[must_use]
    pub fn new(certificates: Certificates) -> Self {
        Self(RwLock::new(certificates))
    }

    /// Uses other certificates from now on. Open connections are not affected.
    pub fn replace(&self, certificates: Certificates) {
        *self.0.write() = certificates;
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.read().acceptor.clone()
    }
}

impl TlsFiles {
    /// Reads the files, and checks that key and certificate match.
    ///
    /// # Errors
    /// The first invalid file.
    pub fn read(&self) -> Result<Certificates, TlsError> {
        let chain = certificates(&self.cert)?;
        let key = private_key(&self.key)?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider knows the versions it was made for");
        let config = match &self.client_ca {
            None => config.with_no_client_auth(),
            Some(path) => config.with_client_cert_verifier(client_verifier(path)?),
        };
        let config = config.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let cert = self.cert.display();
                wrong(&self.key, format!("it is not the key of the first certificate in {cert}"))
            }
            rustls::Error::InvalidCertificate(_) => wrong(&self.cert, error),
            error => wrong(&self.key, error),
        })?;
        let mode = fs::metadata(&self.key).map_err(|e| wrong(&self.key, e))?.permissions().mode();
        const OTHERS_READ: u32 = 0o004;
        Ok(Certificates {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            key_is_public: mode & OTHERS_READ != 0,
        })
    }
}

fn provider() -> Arc<crypto::CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(path, &error))?;
    if certificates.is_empty() {
        return Err(wrong(path, "there is no certificate in it (PEM)"));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            wrong(path, "there is no private key in it (PEM, not encrypted)")
        }
        error => unreadable(path, &error),
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(path)? {
        authorities.add(certificate).map_err(|error| wrong(path, error))?;
    }
    Ok(authorities)
}

fn client_verifier(
    path: &Path,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let authorities = authorities(path)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(authorities.into(), provider());
    verifier.build().map_err(|error| wrong(path, error))
}

fn unreadable(path: &Path, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            wrong(path, "there is no such file")
        }
        pem::Error::Io(error) => wrong(path, error),
        error => wrong(path, format!("it is not PEM: {error}")),
    }
}

fn wrong(path: &Path, problem: impl ToString) -> TlsError {
    TlsError { path: path.into(), problem: problem.to_string() }
}
