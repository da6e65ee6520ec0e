//! TLS to a server, by the arguments of a command.

use std::path::PathBuf;

use anyhow::Context;
use serve::tls::TlsClientFiles;

use super::attach::client::Secure;

/// The files that TLS takes.
#[derive(clap::Args)]
pub(super) struct Files {
    /// Connect over TLS to a server whose certificate is signed by an authority in this file (PEM)
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// The certificate of this machine that the server asks for (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    tls_cert: Option<PathBuf>,

    /// The key of --tls-cert (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Files {
    /// TLS to the server at this address, if the arguments ask for it.
    ///
    /// # Errors
    /// A file cannot be used, or the address is the path of a Unix socket.
    pub(super) fn to(&self, server: &str) -> anyhow::Result<Option<Secure>> {
        let Some(ca) = self.tls_ca.clone() else { return Ok(None) };
        let parts = server.rsplit_once(':').filter(|_| !server.contains('/'));
        let (host, _) = parts.context("--tls-ca: TLS takes a server at HOST:PORT")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let ours = self.tls_cert.clone().zip(self.tls_key.clone());
        let client = TlsClientFiles { ca, ours }.client()?;
        Ok(Some(Secure { client, host }))
    }
}
