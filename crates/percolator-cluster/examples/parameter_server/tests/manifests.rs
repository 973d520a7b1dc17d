//! The manifests of examples/kubernetes: their command lines are the example's, and what they name is there.

use std::collections::BTreeMap;
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

/// The manifests that the kustomization names, and their texts.
pub(super) fn files() -> Vec<(String, String)> {
    let resources = kustomization()["resources"].as_array().unwrap().clone();
    let read = |name: &Value| {
        let name = name.as_str().unwrap();
        (name.to_owned(), fs::read_to_string(folder().join(name)).unwrap())
    };
    resources.iter().map(read).collect()
}

fn kustomization() -> Value {
    let text = fs::read_to_string(folder().join("kustomization.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
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

/// The objects that start pods, and their pods.
fn pods(objects: &[Value]) -> Vec<(&Value, &Value)> {
    let pods = objects.iter().map(|object| (object, &object["spec"]["template"]));
    let pods: Vec<_> = pods.filter(|(_, pod)| pod.is_object()).collect();
    assert_eq!(pods.len(), 3, "etcd, servers, trainers");
    pods
}

/// The variables of a container, as Kubernetes makes them.
fn variables(objects: &[Value], container: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for from in list(&container["envFrom"]) {
        let map = find(objects, "ConfigMap", text(&from["configMapRef"]["name"]));
        let data = map["data"].as_object().unwrap();
        found.extend(data.iter().map(|(name, value)| (name.clone(), text(value).to_owned())));
    }
    for variable in list(&container["env"]) {
        let value = match text(&variable["valueFrom"]["fieldRef"]["fieldPath"]) {
            "metadata.name" => "pod-1",
            "metadata.labels['apps.kubernetes.io/pod-index']" => "1",
            "status.podIP" => "10.1.2.3",
            other => panic!("what is {other}?"),
        };
        found.insert(text(&variable["name"]).to_owned(), value.to_owned());
    }
    found
}

/// The arguments of a container, with its variables in place.
fn arguments(objects: &[Value], container: &Value) -> Vec<String> {
    let variables = variables(objects, container);
    let mut arguments = Vec::new();
    for argument in list(&container["args"]) {
        let mut argument = text(argument).to_owned();
        for (name, value) in &variables {
            argument = argument.replace(&format!("$({name})"), value);
        }
        assert!(!argument.contains("$("), "{argument}: there is no such variable");
        arguments.push(argument);
    }
    arguments
}

fn parse(arguments: &[String]) -> Result<Role, clap::Error> {
    let words = std::iter::once("parameter_server").chain(arguments.iter().map(String::as_str));
    Options::try_parse_from(words).map(|options| options.role.expect("a pod has a role"))
}

/// What the pods of the example run, and the arguments of it.
fn roles(objects: &[Value]) -> Vec<(Value, Vec<String>)> {
    let containers = pods(objects).into_iter().flat_map(|(_, pod)| list(&pod["spec"]["containers"]));
    let ours = containers.filter(|container| container["image"] == IMAGE);
    ours.map(|container| (container.clone(), arguments(objects, container))).collect()
}

#[test]
fn command_lines_are_those_of_the_example() {
    let objects = objects();
    let (mut servers, mut trainers) = (Vec::<ServerOptions>::new(), Vec::<TrainerOptions>::new());
    let roles = roles(&objects);
    for (container, arguments) in &roles {
        match parse(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}")) {
            Role::Server(options) => servers.push(options),
            Role::Trainer(options) => trainers.push(options),
            role => panic!("{role:?}"),
        }
        // One argument that the example does not have, in any place, is found.
        for place in 1..arguments.len() {
            let mut wrong = arguments.clone();
            wrong[place] = wrong[place].replacen("--", "--no-", 1);
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            let command = list(&container[probe]["exec"]["command"]);
            let Some((program, words)) = command.split_first() else { continue };
            assert_eq!(program, PROGRAM);
            let words: Vec<_> = words.iter().map(|word| text(word).to_owned()).collect();
            let Role::Probe(options) = parse(&words).unwrap() else { panic!("{words:?}") };
            let Role::Server(server) = parse(arguments).unwrap() else { panic!("{arguments:?}") };
            assert_eq!(options.address.port(), server.listen.port());
            let within = Duration::from_secs(container[probe]["timeoutSeconds"].as_u64().unwrap());
            assert!(within > crate::client::ANSWER_WITHIN, "{probe}");
        }
    }
    let ([server], [trainer]) = (&servers[..], &trainers[..]) else { panic!("{servers:?} {trainers:?}") };
    assert!(server.shard().unwrap().number == 1 && server.place.folder.is_none());
    assert!(server.advertise_ip.is_some(), "0.0.0.0 is nobody's address");
    assert_eq!((&server.job.name, server.job.shards), (&trainer.job.name, trainer.job.shards));
    assert_eq!((&server.place.etcd, server.place.etcd.len()), (&trainer.place.etcd, 3));
    assert_eq!(server.place.etcd_prefix, trainer.place.etcd_prefix);
    assert!(server.lease.ttl() < trainer.patience(), "a server may come back meanwhile");
}

#[test]
fn what_manifests_name_is_there() {
    let objects = objects();
    for (object, pod) in pods(&objects) {
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let spec = &pod["spec"];
        let mut volumes: Vec<_> = list(&spec["volumes"]).iter().map(|volume| &volume["name"]).collect();
        if object["kind"] == "StatefulSet" {
            assert_eq!(object["spec"]["selector"]["matchLabels"].as_object(), Some(labels));
            let service = find(&objects, "Service", text(&object["spec"]["serviceName"]));
            assert_eq!(service["spec"]["selector"].as_object(), Some(labels));
            assert_eq!(service["spec"]["clusterIP"], "None", "names of pods are those of such a service");
            let claims = list(&object["spec"]["volumeClaimTemplates"]);
            volumes.extend(claims.iter().map(|claim| &claim["metadata"]["name"]));
            let budget = find(&objects, "PodDisruptionBudget", text(&object["metadata"]["name"]));
            assert_eq!(budget["spec"]["selector"]["matchLabels"].as_object(), Some(labels));
            let is_port = |port: &Value| {
                let containers = list(&spec["containers"]).iter();
                containers.flat_map(|one| list(&one["ports"])).any(|one| one["name"] == *port)
            };
            let ports = list(&service["spec"]["ports"]);
            assert!(!ports.is_empty() && ports.iter().all(|port| is_port(&port["targetPort"])), "{ports:?}");
        }
        for mount in list(&spec["containers"]).iter().flat_map(|container| list(&container["volumeMounts"])) {
            assert!(volumes.contains(&&mount["name"]), "{mount}");
        }
    }
    let servers = find(&objects, "StatefulSet", "parameter-server");
    let [(_, arguments), _] = &roles(&objects)[..] else { panic!("servers, then trainers") };
    let Role::Server(options) = parse(arguments).unwrap() else { panic!("{arguments:?}") };
    assert_eq!(servers["spec"]["replicas"], options.job.shards, "config.yaml and servers.yaml");
    let container = &servers["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["ports"][0]["containerPort"], options.listen.port());
    assert_eq!(Path::new(text(&container["volumeMounts"][0]["mountPath"])), options.checkpoints);
    let grace = servers["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(Duration::from_secs(grace) > crate::server::ENDS_WITHIN, "the last checkpoint is written");
    let trainers = find(&objects, "Job", "trainer");
    let rules = list(&trainers["spec"]["podFailurePolicy"]["rules"]);
    let asked = Value::from(crate::ASKED_TO_END);
    assert!(rules.iter().any(|rule| list(&rule["onExitCodes"]["values"]).contains(&asked)), "{rules:?}");
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
    let file = fs::read_to_string(folder().join("Dockerfile")).unwrap();
    let example = "--package percolator-cluster --example parameter_server";
    assert!(file.contains(example) && file.contains(&format!("ENTRYPOINT [\"{PROGRAM}\"]")), "{file}");
    assert!(file.contains(&format!("target/release/examples/parameter_server {PROGRAM}\n")), "{file}");
}

/// The commands that people are told to type.
#[test]
fn commands_in_the_readme_are_those_of_the_example() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let mut count = 0;
    for line in readme.lines().filter(|line| line.starts_with("$ ")) {
        let Some((_, words)) = line.split_once(&format!("-- {PROGRAM} ")) else { continue };
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
        count += 1;
    }
    assert!(count > 0, "the README has such a command");
}
