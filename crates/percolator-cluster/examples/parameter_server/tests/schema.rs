//! The manifests and Kubernetes' published schemas, which the Python package kubernetes-validate carries.
//! Without its command, the tests say that they did not run; `PERCOLATOR_NEED_KUBERNETES` makes that an
//! error.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::manifests::files;
use super::process::need;

/// The oldest version that the manifests are for, and the newest one whose schema there is.
const VERSIONS: [&str; 2] = ["1.29", "1.37"];

fn is_there() -> bool {
    need::program("KUBERNETES", "kubernetes-validate", "PyPI's package of that name")
}

/// Judges a file by the schema: fields that it does not have are refused, too. Returns what is wrong.
fn judge(file: &Path, version: &str) -> Result<(), String> {
    let mut command = Command::new("kubernetes-validate");
    let output = command.args(["--strict", "--kubernetes-version", version]).arg(file).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    // A kind or version that no schema knows is a warning there.
    match output.status.success() && said.contains("passed for resource") && !said.contains("WARN") {
        true => Ok(()),
        false => Err(said),
    }
}

#[test]
fn manifests_are_as_the_schemas_say() {
    if !is_there() {
        return;
    }
    let folder = super::manifests::folder();
    for version in VERSIONS {
        let files = files().into_iter().map(|(name, _)| folder.join(name));
        for file in files.chain([super::manifests::of_serve()]) {
            judge(&file, version).unwrap_or_else(|said| panic!("{file:?}: {said}"));
        }
    }
}

/// What is wrong is found: a field of another type, one that does not exist, and one that is missing.
#[test]
fn wrong_manifests_are_refused() {
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, right, wrong, due) in [
        ("servers.yaml", "replicas: 3", "replicas: three", "replicas"),
        ("servers.yaml", "terminationGracePeriodSeconds", "terminationGracePeriod", "terminationGracePeriod"),
        ("servers.yaml", "- name: server\n          image", "- image", "'name' is a required property"),
        ("trainers.yaml", "- action: Ignore\n        onExitCodes", "- onExitCodes", "action"),
        ("etcd.yaml", "accessModes: [ReadWriteOnce]", "accessModes: ReadWriteOnce", "accessModes"),
        ("etcd.yaml", "apiVersion: policy/v1", "apiVersion: policy/v0", "Couldn't find schema"),
    ] {
        let (_, text) = files().into_iter().find(|(file, _)| file == name).unwrap();
        assert!(text.contains(right), "{name} has {right}");
        let file = folder.path().join(name);
        fs::write(&file, text.replacen(right, wrong, 1)).unwrap();
        let version = VERSIONS[VERSIONS.len() - 1];
        let said = judge(&file, version).expect_err(wrong);
        assert!(said.contains(due), "{wrong}: {said}");
    }
}
