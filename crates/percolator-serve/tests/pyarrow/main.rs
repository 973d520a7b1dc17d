//! pyarrow's own client, as it comes from PyPI, beside a local feed of the same description: what it gets is
//! the same, bit for bit. Without pyarrow, the tests say that they did not run; `PERCOLATOR_NEED_PYARROW=1`
//! makes that a failure.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../../../tests/common/need.rs"]
mod need;

#[path = "../common/mod.rs"]
mod common;
mod local;

use std::path::Path;
use std::process::{Command, Output};

use percolator_serve::Tls;
use serde_json::{Value, json};

use common::data::{self, images};
use common::served::Served;

fn is_there() -> bool {
    need::python("PYARROW", "numpy, pyarrow.flight")
}

impl Served {
    /// What pyarrow sees: `what` is the function of the script, and `more` what it takes.
    fn seen(&self, what: &str, request: &Value, more: Value) -> Value {
        let mut task = json!({"do": what, "url": self.url(), "request": request});
        for (key, value) in more.as_object().unwrap() {
            task[key] = value.clone();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pyarrow/client.py");
        let ran = Command::new("python3").arg(script).arg(task.to_string()).output().unwrap();
        serde_json::from_slice(&printed(&ran)).unwrap()
    }

    /// Compares what pyarrow gets of a feed with what a local one delivers.
    #[track_caller]
    fn check(&self, feed: &Value) -> Vec<Value> {
        let due = local::batches(&self.root(), feed);
        let seen = self.seen("get", &of(feed), json!({}));
        check_same(&due, list(&seen));
        due
    }
}

#[track_caller]
fn printed(ran: &Output) -> Vec<u8> {
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    ran.stdout.clone()
}

fn of(feed: &Value) -> Value {
    json!({"version": 1, "feed": feed})
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is a list"))
}

/// Compares all that a local batch has; the metadata of a served one have more.
#[track_caller]
fn check_same<'a>(due: &[Value], seen: impl IntoIterator<Item = &'a Value>) {
    let seen: Vec<_> = seen.into_iter().collect();
    assert_eq!(seen.len(), due.len(), "batches");
    for (number, (due, seen)) in due.iter().zip(seen).enumerate() {
        assert_eq!(seen["rows"], due["rows"], "batch {number}");
        assert_eq!(seen["columns"], due["columns"], "batch {number}");
        for (key, value) in due["metadata"].as_object().unwrap() {
            assert_eq!(seen["metadata"][key], *value, "batch {number}: {key}");
        }
        for (name, tensor) in seen["tensors"].as_object().unwrap() {
            assert_eq!(tensor["is_in_place"], true, "batch {number}: {name}");
            assert_eq!(tensor["shape"], due["shapes"][name], "batch {number}: {name}");
        }
    }
}

/// A feed of Examples with fields of every kind.
fn examples() -> Value {
    json!({
        "sources": [{"lmdb": {"path": "examples"}}], "batch_size": {"per_replica": 4},
        "schedule": {"epochs": 1}, "decoder": {"example": {"fields": data::FIELDS}},
    })
}

#[test]
fn a_flight_says_what_its_batches_have() {
    if !is_there() {
        return;
    }
    let served = Served::plain();
    let feed = images(json!({"dtype": "bf16", "devices": ["host:0", "host:1"]}));
    let seen = served.seen("schema", &of(&feed), json!({}));
    assert_eq!(seen["metadata"]["percolator.version"], "1");
    assert_eq!((&seen["is_schema_alone_the_same"], &seen["is_ordered"]), (&true.into(), &true.into()));
    assert_eq!((list(&seen["tickets"]).len(), &seen["app_metadata"]["ranks"]), (2, &2.into()));
    assert_eq!((&seen["total_records"], &seen["app_metadata"]["records"]), (&22.into(), &22.into()));
    assert!(seen["app_metadata"]["memory_bytes"].as_u64().unwrap() > 0, "{seen}");
    let field = |seen: &Value, name: &str| -> Value {
        let found = list(&seen["fields"]).iter().find(|field| field["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is a column: {seen}")).clone()
    };
    let pixels = field(&seen, "data");
    let about = json!({"dtype": "bf16", "kind": "fixed", "shape": [3, 6, 5], "layout": "nchw"});
    for (key, value) in about.as_object().unwrap() {
        assert_eq!(pixels["about"][key], *value, "{pixels}");
    }
    let tensor = "extension<arrow.fixed_shape_tensor[value_type=uint16, shape=[3,6,5]";
    assert!(pixels["type"].as_str().unwrap().starts_with(tensor), "{pixels}");
    assert_eq!((&field(&seen, "label")["type"], &pixels["nullable"]), (&"int32".into(), &false.into()));

    let seen = served.seen("schema", &of(&examples()), json!({}));
    for (name, kind, max, arrow) in [
        ("words", "padded", 5, "extension<arrow.fixed_shape_tensor[value_type=int32, shape=[5]"),
        ("tokens", "ragged", 7, "large_list<"),
        ("name", "padded", 8, "extension<arrow.fixed_shape_tensor[value_type=uint8, shape=[8]"),
    ] {
        let field = field(&seen, name);
        assert_eq!((&field["about"]["kind"], &field["about"]["max"]), (&kind.into(), &max.into()), "{field}");
        assert!(field["type"].as_str().unwrap().starts_with(arrow), "{field}");
    }
    assert_eq!(field(&seen, "half")["about"]["dtype"], "f16");
    assert_eq!(field(&seen, "words.lengths")["type"], "int64");
}

#[test]
fn images_of_every_type_are_those_of_a_local_feed_and_are_not_copied() {
    if !is_there() {
        return;
    }
    let served = Served::plain();
    for (dtype, numpy) in [("f32", "float32"), ("u8", "uint8"), ("f16", "float16"), ("bf16", "uint16")] {
        let due = served.check(&images(json!({"dtype": dtype, "transform": {"mirror": true}})));
        assert_eq!((due.len(), &due[0]["columns"]["data"][0]), (6, &numpy.into()));
    }
    let due = served.check(&images(json!({"layout": "nhwc", "transform": {"crop": 4}})));
    assert_eq!(due[5]["shapes"]["data"], json!([2, 4, 4, 3]));
    let shuffled = json!({"epochs": 2, "shuffle": {"by": "global"}, "last_batch": "drop"});
    assert_eq!(served.check(&images(json!({"schedule": shuffled, "seed": {"indexed": 7}}))).len(), 10);
}

#[test]
fn fields_of_every_kind_are_those_of_a_local_feed() {
    if !is_there() {
        return;
    }
    let served = Served::plain();
    let due = served.check(&examples());
    for name in ["id", "box", "half", "brain", "words.lengths", "tokens.offsets", "name.lengths"] {
        assert!(due[0]["columns"][name].is_array(), "{name}: {}", due[0]);
    }
}

#[test]
fn columns_that_are_asked_for_say_which_rows_these_are() {
    if !is_there() {
        return;
    }
    let served = Served::plain();
    let feed = images(json!({"schedule": {"epochs": 2, "last_batch": "pad", "shuffle": {"by": "global"}}}));
    let due = local::batches_with_columns(&served.root(), &feed);
    let mut request = of(&feed);
    request["columns"] = json!(["epoch", "position", "step", "mask"]);
    // And the request itself stands for a ticket.
    check_same(&due, list(&served.seen("get_by_request", &request, json!({}))));
    assert_eq!((due.len(), &due[5]["metadata"]["records"], &due[5]["rows"]), (12, &2.into(), &4.into()));
}

#[test]
fn a_stream_goes_on_where_its_client_acknowledged() {
    if !is_there() {
        return;
    }
    let served = Served::plain();
    let feed = images(json!({"schedule": {"epochs": 2, "shuffle": {"by": "global"}}}));
    let due = local::batches(&served.root(), &feed);
    for acknowledge in [1, 4, 6, 11] {
        let more = json!({"window": 2, "acknowledge": acknowledge});
        let seen = served.seen("resumed", &of(&feed), more);
        let (first, second) = (list(&seen["first"]), list(&seen["second"]));
        let steps: Vec<_> = second.iter().map(|batch| batch["metadata"].clone()).collect();
        assert_eq!((first.len(), second.len()), (acknowledge, due.len() - acknowledge), "{steps:?}");
        check_same(&due, first.iter().chain(second));
        assert_eq!(seen["after"], 0, "an ended ticket has a stream without batches");
        let numbers = |batches: &[Value]| -> Vec<u64> {
            batches.iter().map(|batch| batch["metadata"]["number"].as_u64().unwrap()).collect()
        };
        assert!(numbers(first).into_iter().eq(0..first.len() as u64), "{:?}", numbers(first));
        assert!(numbers(second).into_iter().eq(0..second.len() as u64), "{:?}", numbers(second));
    }
}

#[test]
fn a_token_is_asked_for() {
    if !is_there() {
        return;
    }
    let served = Served::start(|builder, _| builder.token("first").token("second"));
    let feed = images(json!({}));
    for token in ["first", "second"] {
        let seen = served.seen("get", &of(&feed), json!({"token": token}));
        check_same(&local::batches(&served.root(), &feed), list(&seen));
    }
    assert_eq!(served.seen("status", &Value::Null, json!({"token": "first"}))["is_draining"], false);
    for more in [json!({}), json!({"token": "third"}), json!({"token": "firs"})] {
        let seen = served.seen("refused", &of(&feed), more);
        assert_eq!(seen[0], "FlightUnauthenticatedError", "{seen}");
    }
}

#[test]
fn what_may_not_be_served_is_an_error_of_its_kind() {
    if !is_there() {
        return;
    }
    let served = Served::plain();
    let absolute = served.folder.path().join("outside");
    for path in ["../outside", "images/../../outside", "link", absolute.to_str().unwrap()] {
        let feed = images(json!({"sources": [{"lmdb": {"path": path}}]}));
        let seen = served.seen("refused", &of(&feed), json!({}));
        assert_eq!(seen[0], "FlightUnauthorizedError", "{path}: {seen}");
    }
    let mut request = of(&images(json!({})));
    request["version"] = json!(2);
    let seen = served.seen("refused", &request, json!({}));
    assert!(seen[0] == "ArrowInvalid" && seen[1].as_str().unwrap().contains("version 2"), "{seen}");
    let seen = served.seen("refused", &of(&json!({"dtype": "f99"})), json!({}));
    assert!(seen[0] == "ArrowInvalid" && seen[1].as_str().unwrap().contains("f99"), "{seen}");
}

#[test]
fn a_unix_socket_and_tls_deliver_the_same() {
    if !is_there() {
        return;
    }
    let feed = images(json!({"dtype": "u8"}));
    let served = Served::start(|builder, folder| builder.listen_unix(folder.join("socket")));
    let due = local::batches(&served.root(), &feed);
    let socket = served.folder.path().join("socket");
    let url = format!("grpc+unix://{}", socket.to_str().unwrap());
    check_same(&due, list(&served.seen("get", &of(&feed), json!({"url": url}))));

    let served = Served::start(|builder, folder| {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
        std::fs::write(&certificate, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        builder.tls(Tls::new(certificate, key))
    });
    let url = served.url().replace("grpc://", "grpc+tls://");
    let more = json!({"url": url, "authority": served.folder.path().join("certificate.pem")});
    check_same(&due, list(&served.seen("get", &of(&feed), more)));
}

/// The programs in Python of the guide's page, as they stand there.
#[test]
fn the_guides_programs_run() {
    if !is_there() {
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/serving.md");
    let page = std::fs::read_to_string(page).unwrap();
    let programs: Vec<_> =
        page.split("\n```python\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert_eq!(programs.len(), 3, "the page has a program for pyarrow, one with tickets, one for PyTorch");
    let served = Served::plain();
    for program in programs {
        if program.contains("import torch") && !need::python("TORCH", "torch") {
            continue;
        }
        assert!(program.contains("grpc://127.0.0.1:4433") && program.contains("train_lmdb"), "{program}");
        let program = program.replace("grpc://127.0.0.1:4433", &served.url()).replace("train_lmdb", "images");
        let ran = Command::new("python3").args(["-c", &program]).output().unwrap();
        assert!(!printed(&ran).is_empty(), "{program} prints what it gets");
    }
}
