//! The manifests of examples/kubernetes: their command lines are the example's, and what they name is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;
use serde_json::Value;

use crate::options::{Options, Role, ServerOptions, TrainerOptions};

/// The image of the example, before the kustomization says where it is.
const IMAGE: &str = "percolator-parameter-server";
const PROGRAM: &str = "/usr/local/bin/parameter_server";

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes")
}

/// The manifest of a server of feeds. Its command line is tested with the command.
pub(super) fn of_serve() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../percolator-serve/examples/kubernetes/serve.yaml")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// The manifests that the kustomization names, and their texts.
pub(super) fn files() -> Vec<(String, String)> {
    let names = list(&kustomization()["resources"]).to_vec();
    names.iter().map(|name| (text(name).to_owned(), read(text(name)))).collect()
}

fn kustomization() -> Value {
    serde_saphyr::from_str(&read("kustomization.yaml")).unwrap()
}

/// All objects of the manifests.
fn objects() -> Vec<Value> {
    let parse = |(name, text): (String, String)| -> Vec<Value> {
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    files().into_iter().flat_map(parse).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is a text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("there is a {kind} {name}"))
}

/// The arguments of the container of an object, with its variables in place, as Kubernetes makes them.
fn arguments(objects: &[Value], object: &Value) -> Vec<String> {
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], IMAGE);
    let config = find(objects, "ConfigMap", text(&container["envFrom"][0]["configMapRef"]["name"]));
    let set = config["data"].as_object().unwrap().iter();
    let mut variables: Vec<_> = set.map(|(name, value)| (name.as_str(), text(value))).collect();
    for variable in list(&container["env"]) {
        let value = match text(&variable["valueFrom"]["fieldRef"]["fieldPath"]) {
            "metadata.name" => "pod-1",
            "metadata.labels['apps.kubernetes.io/pod-index']" => "1",
            "status.podIP" => "10.1.2.3",
            other => panic!("what is {other}?"),
        };
        variables.push((text(&variable["name"]), value));
    }
    let set = |argument: String, (name, value): &(&str, &str)| argument.replace(&format!("$({name})"), value);
    let arguments = list(&container["args"]).iter();
    arguments.map(|argument| variables.iter().fold(text(argument).to_owned(), set)).collect()
}

fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Role {
    let words = std::iter::once("parameter_server").chain(arguments);
    Options::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).role.expect("a pod has a role")
}

/// What the pods of the example are told.
fn roles(objects: &[Value]) -> (ServerOptions, TrainerOptions) {
    let server = arguments(objects, find(objects, "StatefulSet", "parameter-server"));
    let trainer = arguments(objects, find(objects, "Job", "trainer"));
    match (parse(server.iter().map(String::as_str)), parse(trainer.iter().map(String::as_str))) {
        (Role::Server(server), Role::Trainer(trainer)) => (server, trainer),
        roles => panic!("{roles:?}"),
    }
}

#[test]
fn command_lines_are_those_of_the_example() {
    let (server, trainer) = roles(&objects());
    assert!(server.shard == 1 && server.job.folder.is_none());
    assert!(server.advertise_ip.is_some(), "0.0.0.0 is nobody's address");
    assert_eq!(server.job.words(), trainer.job.words(), "all processes agree on them");
    assert_eq!((server.job.etcd.len(), server.job.words().concat().contains("$(")), (3, false));
    assert!(server.job.ttl < trainer.patience, "a server may come back meanwhile");
    // And so are those that people are told to type.
    let readme = read("README.md");
    let mut commands = readme.lines().filter_map(|line| line.split_once(&format!("-- {PROGRAM} ")));
    let (_, words) = commands.next().expect("the README has such a command");
    assert!(matches!(parse(words.split_whitespace()), Role::Report(_)), "{words}");
}

#[test]
fn what_manifests_name_is_there() {
    let objects = objects();
    let pods: Vec<_> =
        objects.iter().filter(|object| object["spec"]["template"]["spec"].is_object()).collect();
    assert_eq!(pods.len(), 3, "etcd, servers, trainers");
    for object in pods {
        let pod = &object["spec"]["template"];
        let (labels, containers) = (&pod["metadata"]["labels"], list(&pod["spec"]["containers"]));
        let mut volumes: Vec<_> =
            list(&pod["spec"]["volumes"]).iter().map(|volume| &volume["name"]).collect();
        if object["kind"] == "StatefulSet" {
            let service = find(&objects, "Service", text(&object["spec"]["serviceName"]));
            let budget = find(&objects, "PodDisruptionBudget", text(&object["metadata"]["name"]));
            let selectors = [&object["spec"]["selector"], &budget["spec"]["selector"]];
            assert!(selectors.iter().all(|selector| selector["matchLabels"] == *labels), "{selectors:?}");
            assert_eq!(service["spec"]["selector"], *labels);
            assert_eq!(service["spec"]["clusterIP"], "None", "names of pods are those of such a service");
            let claims = list(&object["spec"]["volumeClaimTemplates"]);
            volumes.extend(claims.iter().map(|claim| &claim["metadata"]["name"]));
            let ports: Vec<_> = containers.iter().flat_map(|one| list(&one["ports"])).collect();
            for port in list(&service["spec"]["ports"]) {
                assert!(ports.iter().any(|one| one["name"] == port["targetPort"]), "{port}");
            }
        }
        for mount in containers.iter().flat_map(|container| list(&container["volumeMounts"])) {
            assert!(volumes.contains(&&mount["name"]), "{mount}");
        }
    }
    let (options, _) = roles(&objects);
    let servers = &find(&objects, "StatefulSet", "parameter-server")["spec"];
    assert_eq!(servers["replicas"], options.job.shards, "config.yaml and servers.yaml");
    let container = &servers["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], options.listen.port());
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["tcpSocket"]["port"], container["ports"][0]["name"]);
    }
    assert_eq!(Path::new(text(&container["volumeMounts"][0]["mountPath"])), options.checkpoints);
    let grace = servers["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(Duration::from_secs(grace) > crate::server::SAVE_WITHIN, "the last checkpoint is written");
    let rules = list(&find(&objects, "Job", "trainer")["spec"]["podFailurePolicy"]["rules"]);
    let asked = Value::from(crate::ASKED_TO_END);
    assert!(rules.iter().any(|rule| list(&rule["onExitCodes"]["values"]).contains(&asked)), "{rules:?}");
}

#[test]
fn what_the_manifest_of_a_server_of_feeds_names_is_there() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(of_serve()).unwrap()).unwrap();
    let [service, deployment] =
        ["Service", "Deployment"].map(|kind| &find(&objects, kind, "percolator-serve")["spec"]);
    let pod = &deployment["template"];
    let labels = [&service["selector"], &deployment["selector"]["matchLabels"]];
    assert!(labels.iter().all(|labels| **labels == pod["metadata"]["labels"]), "{labels:?}");
    let container = &pod["spec"]["containers"][0];
    let is_named = |list: &[Value], name: &Value| list.iter().any(|one| one["name"] == *name);
    for port in list(&service["ports"]) {
        assert!(is_named(list(&container["ports"]), &port["targetPort"]), "{port}");
    }
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let get = &container[probe]["httpGet"];
        assert_eq!(
            (&get["path"], &get["port"], &get["scheme"]),
            (&path.into(), &"feeds".into(), &"HTTPS".into())
        );
    }
    let words: Vec<_> = list(&container["args"]).iter().map(text).collect();
    let option = |name: &str| {
        let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("it has {name}"))
    };
    for mount in list(&container["volumeMounts"]) {
        assert_eq!(mount["readOnly"], true, "{mount}");
        assert!(is_named(list(&pod["spec"]["volumes"]), &mount["name"]), "{mount}");
    }
    for file in ["--root", "--tls-certificate", "--tls-key", "--key", "--token-file"].map(option) {
        let is_below = |mount: &Value| Path::new(file).starts_with(text(&mount["mountPath"]));
        assert!(list(&container["volumeMounts"]).iter().any(is_below), "{file}");
    }
    for (name, option) in [("feeds", option("--listen")), ("metrics", option("--metrics"))] {
        let port = list(&container["ports"]).iter().find(|port| port["name"] == name).unwrap();
        assert!(option.ends_with(&format!(":{}", port["containerPort"])), "{option}");
    }
    let drain: u64 = option("--drain").trim_end_matches('s').parse().unwrap();
    assert!(pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap() > drain);
}

#[test]
fn the_kustomization_has_all_manifests_and_the_image_is_built_from_the_example() {
    let named: Vec<_> = files().into_iter().map(|(name, _)| name).collect();
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_manifest = name.ends_with(".yaml") && name != "kustomization.yaml";
        assert_eq!(named.contains(&name), is_manifest, "{name}");
    }
    assert_eq!(kustomization()["images"][0]["name"], IMAGE);
    let file = read("Dockerfile");
    let example = "--package percolator-cluster --example parameter_server";
    assert!(file.contains(example) && file.contains(&format!("ENTRYPOINT [\"{PROGRAM}\"]")), "{file}");
    assert!(file.contains(&format!("target/release/examples/parameter_server {PROGRAM}\n")), "{file}");
}
