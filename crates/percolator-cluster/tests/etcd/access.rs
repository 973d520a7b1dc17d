//! Users, passwords, roles.

use std::time::Duration;

use percolator_cluster::metadata::{EtcdMetadata, Metadata, MetadataError, Revision, Transaction};

use crate::server::Etcd;

/// An etcd with the users `root` and `trainer`; the second may use what is below `/jobs/`. It asks nobody
/// yet.
fn with_users() -> Option<Etcd> {
    let etcd = Etcd::start(&[])?;
    for command in [
        &["user", "add", "root:master"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "jobs"],
        &["role", "grant-permission", "jobs", "--prefix=true", "readwrite", "/jobs/"],
        &["user", "add", "trainer:secret"],
        &["user", "grant-role", "trainer", "jobs"],
    ] {
        etcd.control(command);
    }
    Some(etcd)
}

/// Makes the tokens invalid that were given, as the end of their time does.
fn forget_tokens(etcd: &Etcd) {
    etcd.control(&["--user=root:master", "auth", "disable"]);
    etcd.control(&["auth", "enable"]);
}

fn is_denied<T: std::fmt::Debug>(result: Result<T, MetadataError>, due: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, MetadataError::Denied { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains(due) && !message.contains("secret"), "{message}");
}

#[test]
fn a_user_may_do_what_its_role_says() {
    let Some(etcd) = with_users() else { return };
    let trainer = etcd.options().user("trainer", "secret");
    // It asks nobody yet, and then it does.
    let records = EtcdMetadata::connect(&trainer.clone().prefix("/jobs/a/")).unwrap();
    let put = Transaction::new().put("x", "1");
    records.transact(&put).unwrap();
    etcd.control(&["auth", "enable"]);
    records.transact(&put).unwrap();
    let shown = format!("{records:?}");
    assert!(shown.contains("trainer") && !shown.contains("secret"), "{shown}");
    assert!(shown.contains("Token(Sensitive)"), "what it gave for the password is not shown: {shown}");
    let revision = records.read("").unwrap().revision;
    let lease = records.grant(Duration::from_secs(60)).unwrap();
    records.transact(&Transaction::new().put_under(lease, "y", "2")).unwrap();
    records.keep_alive(lease).unwrap();
    assert!(records.wait("", revision, Duration::from_secs(60)).unwrap());
    records.revoke(lease).unwrap();

    let others = EtcdMetadata::connect(&trainer.clone().prefix("/others/")).unwrap();
    is_denied(others.read(""), "permission denied");
    is_denied(others.transact(&put), "permission denied");
    is_denied(others.wait("", Revision(1), Duration::from_secs(60)), "permission denied");

    is_denied(EtcdMetadata::connect(&etcd.options().user("trainer", "secret?")), "authentication failed");
    is_denied(EtcdMetadata::connect(&etcd.options().user("nobody", "secret")), "authentication failed");
    let nobody = EtcdMetadata::connect(&etcd.options().prefix("/jobs/a/"));
    is_denied(nobody.and_then(|nobody| nobody.transact(&put)), "user name is empty");

    let before = records.read("").unwrap();
    forget_tokens(&etcd);
    assert_eq!(records.read("").unwrap().records, before.records);
    records.transact(&put).unwrap();
    assert!(records.wait("", before.revision, Duration::from_secs(60)).unwrap());
}

/// etcd says of a watch with such a token that the user may not have it.
#[test]
fn a_wait_logs_in_again() {
    let Some(etcd) = with_users() else { return };
    etcd.control(&["auth", "enable"]);
    let records = EtcdMetadata::connect(&etcd.options().user("trainer", "secret").prefix("/jobs/")).unwrap();
    records.transact(&Transaction::new().put("x", "1")).unwrap();
    forget_tokens(&etcd);
    assert!(records.wait("", Revision(0), Duration::from_secs(60)).unwrap());
}
