//! TLS, with certificates of the test's own.

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, Metadata, MetadataError, Transaction};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::server::Etcd;

/// Makes an authority, `NAME.pem`. Returns what signs.
fn authority(folder: &Path, name: &str) -> Issuer<'static, KeyPair> {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = authority.self_signed(&key).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    Issuer::new(authority, key)
}

/// Makes `NAME.pem` and `NAME.key` for this host.
fn certificate(folder: &Path, name: &str, host: &str, authority: &Issuer<'_, KeyPair>) {
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn denied(options: &EtcdOptions, due: &[&str]) {
    let error = EtcdMetadata::connect(options).unwrap_err();
    assert!(matches!(error, MetadataError::Denied { .. }), "{error:?}");
    let message = error.to_string();
    assert!(due.iter().all(|due| message.contains(due)), "{message}");
}

#[test]
fn etcd_is_reached_by_tls_and_both_are_proven() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (ours, theirs) = (authority(folder.path(), "ours"), authority(folder.path(), "theirs"));
    certificate(folder.path(), "server", "127.0.0.1", &ours);
    certificate(folder.path(), "client", "trainer", &ours);
    certificate(folder.path(), "stranger", "trainer", &theirs);
    let file = |name: &str| path(name).display().to_string();
    let arguments = [
        format!("--cert-file={}", file("server.pem")),
        format!("--key-file={}", file("server.key")),
        format!("--trusted-ca-file={}", file("ours.pem")),
        "--client-cert-auth".to_owned(),
    ];
    let arguments: Vec<_> = arguments.iter().map(|argument| &**argument).collect();
    let reach = |url: &str| {
        let options = EtcdOptions::new([url]).root_certificates(path("ours.pem"));
        options.client_certificate(path("client.pem"), path("client.key"))
    };
    let Some(etcd) = Etcd::start_with(&arguments, "https", reach) else { return };
    let records = EtcdMetadata::connect(&reach(&etcd.url)).unwrap();
    records.transact(&Transaction::new().put("a", "1")).unwrap();
    assert_eq!(records.read("").unwrap().records[0].value, b"1");

    let options = || EtcdOptions::new([&*etcd.url]);
    denied(
        &options().root_certificates(path("theirs.pem")),
        &["UnknownIssuer", "check the root certificates"],
    );
    denied(&options().root_certificates(path("ours.pem")), &["ertificate"]);
    let stranger = options().root_certificates(path("ours.pem"));
    denied(&stranger.client_certificate(path("stranger.pem"), path("stranger.key")), &["ertificate"]);
    // Its certificate is for 127.0.0.1.
    let other_name = EtcdOptions::new([etcd.url.replace("127.0.0.1", "localhost")]);
    denied(&other_name.root_certificates(path("ours.pem")), &["not valid for name", "the host's name"]);
    let plain = EtcdOptions::new([etcd.url.replace("https", "http")]).deadline(Duration::from_millis(500));
    let error = EtcdMetadata::connect(&plain).unwrap_err();
    assert!(matches!(error, MetadataError::Unreachable { .. }), "{error:?}");
}

#[test]
fn an_etcd_without_tls_says_so() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    authority(etcd.folder(), "ours");
    let https = EtcdOptions::new([etcd.url.replace("http", "https")]).deadline(Duration::from_millis(500));
    let error = EtcdMetadata::connect(&https.root_certificates(etcd.folder().join("ours.pem"))).unwrap_err();
    assert!(matches!(error, MetadataError::Unreachable { .. }), "{error:?}");
    let attempts = error.source().unwrap().to_string();
    assert!(attempts.contains("say http://"), "{attempts}");
}
