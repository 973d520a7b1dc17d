//! A feed of a server is a feed: what a training loop sees of it is what it sees of one that is built where
//! the data are, and each goes on where the other was.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use percolator::feed::{ConfigError, FeedSpec, SupplyError};
use percolator::order::{JobWorker, World};
use percolator::snapshot::SnapshotError;
use percolator::{BadRecords, Feed, FeedBuilder, FeedError, Receipt, Snapshot};
use percolator_proof::{EpochState, Verdict};
use percolator_serve::{Client, ClientError, FeedConnect, Server};
use serde_json::{Value, json};

use crate::common::data::{DAMAGED, FIELDS, images};
use crate::common::served::Served;
use crate::process::{must_end, sample};
use crate::proxy::{Proxy, To, Trouble};
use crate::seen::{Seen, spec};
use crate::together::until_empty;

/// Two lanes, two epochs, each in an order of its own.
fn shuffled(more: Value) -> FeedSpec {
    let mut feed = images(json!({
        "devices": ["host:0", "host:1"],
        "schedule": {"epochs": 2, "shuffle": {"by": "global"}},
        "receipts": "positions",
    }));
    more.as_object().unwrap().iter().for_each(|(key, value)| feed[key] = value.clone());
    spec(feed)
}

/// The same feed where the data are.
fn here(served: &Served, feed: &FeedSpec) -> FeedBuilder {
    FeedBuilder::from(feed.clone()).root(served.root().canonicalize().unwrap())
}

/// All that a training loop sees: batches, and where the run is after each step.
#[derive(Debug, PartialEq, Eq)]
struct Loop {
    schedule: String,
    shape: String,
    batches: Vec<Seen>,
    snapshots: Vec<String>,
    receipt: Option<String>,
}

/// Goes on for so many steps.
fn some(feed: &mut Feed, most: usize) -> Loop {
    let schedule = feed.schedule_text();
    let shape = format!("{:?} {:?} {:?}", feed.layout(), feed.input_shape(), feed.records());
    let (mut batches, mut snapshots) = (Vec::new(), Vec::new());
    let mut steps = feed.steps();
    for _ in 0..most {
        let Some(step) = steps.next().transpose().unwrap() else { break };
        batches.extend(step.iter().map(Seen::local));
        snapshots.push(steps.snapshot().unwrap().to_string());
    }
    let receipt = feed.receipt().map(|receipt| receipt.to_string());
    Loop { schedule, shape, batches, snapshots, receipt }
}

fn all(mut feed: Feed) -> Loop {
    must_end("a feed of a server", move || some(&mut feed, usize::MAX))
}

#[test]
fn a_training_loop_sees_what_it_sees_of_a_feed_of_its_own() {
    let socket = tempfile::tempdir().unwrap();
    let socket = socket.path().join("socket");
    let served = Served::start(|builder, _| builder.listen_unix(&socket));
    let examples = json!({
        "sources": [{"lmdb": {"path": "examples"}}],
        "decoder": {"example": {"fields": FIELDS}},
    });
    let padded = json!({"schedule": {"epochs": 2, "last_batch": "pad"}});
    let once = json!({"schedule": {"once": true}, "receipts": "off"});
    let endless = json!({"schedule": {}, "receipts": "off"});
    // Of 22 records, the third lane gets none in the second step.
    let mut empty = examples.clone();
    (empty["devices"], empty["batch_size"]) =
        (json!(["host:0", "host:1", "host:2"]), json!({"per_replica": 5}));
    for more in [json!({}), examples, empty, padded, once, endless] {
        let described = shuffled(more);
        let steps = if described.schedule.is_planned() || described.schedule.once { usize::MAX } else { 9 };
        let seen = |mut feed: Feed| must_end("a feed", move || some(&mut feed, steps));
        let due = seen(here(&served, &described).build().unwrap());
        assert!(due.batches.len() >= 5, "{due:?}");
        for url in [served.url(), format!("shared://{}", socket.display())] {
            assert_eq!(seen(Feed::connect(&url, described.clone()).unwrap()), due, "{url}");
        }
    }
    until_empty(&served.server);
}

#[test]
fn epochs_come_one_by_one_and_again() {
    let served = Served::plain();
    let described = spec(images(json!({})));
    let epochs = |mut feed: Feed| -> Vec<Vec<Seen>> {
        let epoch =
            |feed: &mut Feed| feed.epoch().unwrap().map(|batch| Seen::local(&batch.unwrap())).collect();
        (0..3).map(|_| epoch(&mut feed)).collect()
    };
    let due = epochs(here(&served, &described).build().unwrap());
    let feed = Feed::connect(&served.url(), described).unwrap();
    assert_eq!(must_end("epochs", move || epochs(feed)), due);
}

#[test]
fn each_resumes_from_a_snapshot_of_the_other() {
    let served = Served::plain();
    let described = shuffled(json!({}));
    let due = all(here(&served, &described).build().unwrap());
    let client = served.client();
    let kinds: [&dyn Fn(FeedBuilder) -> Feed; 2] =
        [&|feed| feed.build().unwrap(), &|feed| client.feed(feed.root("")).unwrap()];
    for (first, second) in [(0, 1), (1, 0), (1, 1)] {
        for steps in [1, 3, due.snapshots.len()] {
            let mut begun = kinds[first](here(&served, &described));
            let mut seen = some(&mut begun, steps);
            let snapshot: Snapshot = seen.snapshots.last().unwrap().parse().unwrap();
            let mut receipt: Receipt = begun.receipt().unwrap();
            drop(begun);
            let resumed = kinds[second](here(&served, &described).resume(&snapshot));
            let rest = all(resumed);
            seen.batches.extend(rest.batches);
            seen.snapshots.extend(rest.snapshots);
            assert_eq!((&seen.batches, &seen.snapshots), (&due.batches, &due.snapshots), "{steps} steps");
            receipt.merge(&rest.receipt.unwrap().parse().unwrap()).unwrap();
            assert_eq!(Some(receipt.to_string()), due.receipt);
        }
    }
    let mut sought = Feed::connect(&served.url(), described).unwrap();
    some(&mut sought, 4);
    sought.seek((1, 1)).unwrap();
    let at = due.batches.iter().position(|seen| seen.step.unwrap().id() == (1, 1).into()).unwrap();
    assert_eq!(all(sought).batches, due.batches[at..]);
}

#[test]
fn receipts_prove_a_served_run_and_say_what_is_missing() {
    let served = Served::plain();
    let described = shuffled(json!({}));
    let mut feed = Feed::connect(&served.url(), described).unwrap();
    let verdict = |feed: &Feed| Verdict::of([("served", &feed.receipt().unwrap())]).unwrap();
    some(&mut feed, 4);
    let under_way = verdict(&feed);
    assert_eq!(under_way.epochs.last().unwrap().state, EpochState::UnderWay);
    some(&mut feed, usize::MAX);
    let verdict = verdict(&feed);
    assert!(verdict.is_sound() && verdict.first_not_covered(2).is_none(), "{verdict:?}");
    // Steps that nobody had are missed.
    let mut gap = Feed::connect(&served.url(), shuffled(json!({}))).unwrap();
    some(&mut gap, 1);
    let mut receipt = gap.receipt().unwrap();
    gap.seek((0, 2)).unwrap();
    some(&mut gap, usize::MAX);
    receipt.merge(&gap.receipt().unwrap()).unwrap();
    assert!(!Verdict::of([("gap", &receipt)]).unwrap().is_sound());
}

/// Programs of one job, each with lanes of its own.
#[test]
fn workers_of_a_job_have_their_shares_and_prove_the_run_together() {
    let served = Served::plain();
    let described = shuffled(json!({"devices": ["host:0"]}));
    let world = World::new(2, 2).unwrap();
    let receipts = [0, 1].map(|number| {
        let worker = |feed: FeedBuilder| feed.share(JobWorker { world, number });
        let due = all(worker(here(&served, &described)).build().unwrap());
        let feed = worker(FeedBuilder::from(described.clone()));
        let seen = all(Feed::connect(&served.url(), feed).unwrap());
        assert_eq!(seen, due, "worker {number}");
        seen.receipt.unwrap().parse::<Receipt>().unwrap()
    });
    assert!(!Verdict::of([("one", &receipts[0])]).unwrap().is_sound());
    let both = Verdict::of([("one", &receipts[0]), ("other", &receipts[1])]).unwrap();
    assert!(both.is_sound() && both.first_not_covered(2).is_none(), "{both:?}");
}

#[test]
fn a_feed_outlives_its_servers() {
    let served = Served::start(|builder, folder| builder.key_file(folder.join("key")));
    let described = shuffled(json!({"prefetch": 1}));
    let due = all(here(&served, &described).build().unwrap());
    let (root, key) = (served.root(), served.folder.path().join("key"));
    let proxy = Proxy::new(served.server.addresses()[0]);
    let mut feed = Client::connect(&proxy.url()).unwrap().feed(described.clone()).unwrap();
    let Served { mut server, folder } = served;
    let mut seen = Vec::new();
    for steps in [1, 2, 1] {
        seen.extend(some(&mut feed, steps).batches);
        let next = start(&root, &key);
        proxy.redirect(next.addresses()[0]);
        server = next;
    }
    let receipt = must_end("a feed whose servers were killed", move || {
        seen.extend(some(&mut feed, usize::MAX).batches);
        assert_eq!(seen, due.batches);
        (feed.receipt().map(|receipt| receipt.to_string()), due.receipt)
    });
    assert_eq!(receipt.0, receipt.1);
    // A snapshot needs no server: a later one goes on from it.
    drop(proxy);
    drop((server, folder));
}

#[test]
fn it_does_not_matter_at_which_byte_its_connection_is_cut() {
    let served = Served::plain();
    let examples = json!({
        "sources": [{"lmdb": {"path": "examples"}}], "decoder": {"example": {"fields": FIELDS}},
        "devices": ["host:0"],
    });
    let described = shuffled(examples);
    let due = all(here(&served, &described).build().unwrap());
    let proxy = Proxy::new(served.server.addresses()[0]);
    let client = Client::connect(&proxy.url()).unwrap();
    let before = proxy.passed()[1];
    assert_eq!(all(client.feed(described.clone()).unwrap()), due);
    let to_client = proxy.passed()[1] - before;
    assert!(to_client > 12_000, "{to_client} bytes");
    for at in sample::some_of((0..to_client).step_by(211), 29) {
        // The first connection only asks what the feed is.
        proxy.trouble([Trouble::Cut(To::Client, u64::MAX), Trouble::Cut(To::Client, at)]);
        assert_eq!(all(client.feed(described.clone()).unwrap()), due, "{at}");
    }
}

fn start(root: &Path, key: &Path) -> Server {
    Server::builder(root).listen("127.0.0.1:0".parse().unwrap()).key_file(key).start().unwrap()
}

#[test]
fn clients_in_step_have_one_feed_on_the_server() {
    let served = Served::plain();
    let described = spec(images(json!({"schedule": {"epochs": 1}})));
    let due = all(here(&served, &described).build().unwrap());
    let two = NonZeroUsize::new(2).unwrap();
    let feeds = [(); 2].map(|()| served.client().feed_in_step(described.clone(), two, "job").unwrap());
    let threads = feeds.map(|feed| std::thread::spawn(move || all(feed)));
    for thread in threads {
        assert_eq!(thread.join().unwrap(), due);
    }
}

/// What connecting answers.
#[track_caller]
fn refused(url: &str, feed: impl Into<FeedBuilder>) -> FeedError {
    Feed::connect(url, feed).map(drop).unwrap_err()
}

fn of_client(error: &FeedError) -> &ClientError {
    let FeedError::Supply(error) = error else { panic!("{error}") };
    error.inner().downcast_ref().unwrap()
}

#[test]
fn what_is_wrong_is_said_as_a_feed_of_its_own_says_it() {
    let served = Served::plain();
    let url = served.url();
    let described = || FeedBuilder::from(shuffled(json!({})));
    let error = refused("nowhere", described());
    assert!(error.to_string().starts_with("nowhere is no address of a server"), "{error}");
    assert!(matches!(of_client(&refused("grpc://127.0.0.1:1", described())), ClientError::Connect { .. }));
    for wrong in [
        json!({"batch_size": {"per_replica": 0}}),
        json!({"transform": {"crop": 40}}),
        json!({"schedule": {"shuffle": {"by": "global"}}, "receipts": "off"}),
        json!({"sources": []}),
    ] {
        let wrong = shuffled(wrong);
        let words = here(&served, &wrong).build().map(drop).unwrap_err().to_string();
        let error = refused(&url, wrong).to_string();
        assert!(error.contains(&words), "{error}: {words}");
    }
    let skips = described().bad_records(BadRecords::skip());
    let option = "bad records that are left out";
    assert_eq!(refused(&url, skips), ConfigError::WithSupply { option }.into());
    let another = here(&served, &shuffled(json!({"batch_size": {"per_replica": 3}})));
    let another = another.build().unwrap().snapshot().unwrap();
    let error = refused(&url, described().resume(&another));
    assert!(matches!(error, FeedError::Snapshot(SnapshotError::AnotherJob { .. })), "{error}");
    // A decoder of the program's own.
    let own = described().after_decode(|shape| shape, |_, _, _| Ok(()));
    assert!(refused(&url, own).to_string().contains("cannot be sent to a server"));
}

#[test]
fn an_error_of_the_data_comes_after_the_batches_before_it() {
    let served = Served::plain();
    let damaged =
        images(json!({"sources": [{"lmdb": {"path": "damaged"}}], "devices": ["host:0", "host:1"]}));
    let damaged = spec(damaged);
    let until = |mut feed: Feed| {
        let (mut seen, mut steps) = (Vec::new(), feed.steps());
        loop {
            match steps.next().unwrap() {
                Ok(step) => seen.extend(step.iter().map(Seen::local)),
                Err(error) => return (seen, error.to_string()),
            }
        }
    };
    let (due, words) = until(here(&served, &damaged).build().unwrap());
    assert!(words.contains(&format!("record {DAMAGED}")), "{words}");
    let feed = Feed::connect(&served.url(), damaged).unwrap();
    let (seen, error) = must_end("a feed of damaged data", move || until(feed));
    assert_eq!(seen, due);
    assert!(error.contains(&words), "{error}: {words}");
}

#[test]
fn who_leaves_or_cancels_does_not_wait_for_the_server() {
    let served = Served::plain();
    let client = Client::builder(served.url()).give_up_after(Duration::from_secs(3600)).connect().unwrap();
    let mut feed = client.feed(shuffled(json!({"prefetch": 1}))).unwrap();
    some(&mut feed, 1);
    let (root, handle) = (served.root(), feed.handle());
    drop(served.server);
    must_end("a feed without a server", move || {
        handle.cancel();
        let mut steps = feed.steps();
        let end = std::iter::from_fn(|| steps.next()).find_map(Result::err);
        assert_eq!(end, Some(FeedError::Cancelled));
        drop(feed);
        drop(client);
    });
    assert!(root.exists());
    let words = SupplyError::new(ClientError::Closed).to_string();
    assert_eq!(FeedError::from(SupplyError::new(ClientError::Closed)).to_string(), words);
}
