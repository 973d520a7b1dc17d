//! Each batch once, in order and bit for bit, whatever becomes of the connection or the server: a proxy
//! between them cuts it at any byte, lets nothing through any more, or passes crumbs.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use percolator::feed::FeedSpec;
use percolator_serve::{Client, Code, FeedRequest, RemoteFeed, RemoteLane, Server, Share};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::json;

use crate::common::data::images;
use crate::common::served::Served;
use crate::process::{hung_after, must_end, sample};
use crate::proxy::{Proxy, To, Trouble};
use crate::seen::{Seen, only_lane, spec};
use crate::together::{all, refused, request, rest, some, until_clients, until_empty, until_error};

/// A server behind a proxy, and what its feed delivers. Dropped in this order.
struct Ground {
    feed: RemoteFeed,
    proxy: Proxy,
    due: Vec<Seen>,
    served: Served,
}

/// Two epochs of the images, each in an order of its own: 12 batches.
fn shuffled() -> FeedSpec {
    spec(images(json!({"schedule": {"epochs": 2, "shuffle": {"by": "global"}}})))
}

impl Ground {
    fn new(share: Share, window: usize) -> Self {
        // Clients in step that were cut off come again, and not always in time for each other.
        let served = Served::start(|builder, _| builder.join_within(Duration::from_millis(200)));
        let proxy = Proxy::new(served.server.addresses()[0]);
        let request = request(&shuffled()).share(share);
        let feed = open(&proxy, &request, window);
        Ground { feed, proxy, due: only_lane(&served.root(), &shuffled()), served }
    }

    /// Takes all batches over connections that have these troubles, one after the other.
    #[track_caller]
    fn check(&self, troubles: &[Trouble]) {
        self.proxy.trouble(troubles.iter().copied());
        let seen = rest(self.feed.lane(0).unwrap());
        assert_eq!(seen, self.due, "{troubles:?}");
    }

    /// The bytes that go to the server, and to the client, if there is no trouble.
    fn bytes(&self) -> [u64; 2] {
        let before = self.proxy.passed();
        self.check(&[]);
        let after = self.proxy.passed();
        [after[0] - before[0], after[1] - before[1]]
    }
}

fn open(proxy: &Proxy, request: &FeedRequest, window: usize) -> RemoteFeed {
    let builder = Client::builder(proxy.url()).window(NonZeroUsize::new(window).unwrap());
    builder.connect().unwrap().open(request).unwrap()
}

#[test]
fn it_does_not_matter_at_which_byte_a_connection_is_cut() {
    let ground = Ground::new(Share::Divided, 2);
    let [to_server, to_client] = ground.bytes();
    assert!(to_client > 12 * 4 * 360 && to_server > 500, "{to_server} and {to_client} bytes");
    for at in sample::some_of((0..=to_server).step_by(29), 13) {
        ground.check(&[Trouble::Cut(To::Server, at)]);
    }
    for at in sample::some_of((0..=to_client).step_by(149), 41) {
        ground.check(&[Trouble::Cut(To::Client, at)]);
    }
    until_empty(&ground.served.server);
}

#[test]
fn crumbs_make_the_same_batches() {
    let ground = Ground::new(Share::Divided, 2);
    for bytes in [1, 2, 3, 7, 64] {
        ground.check(&[Trouble::Crumbs(bytes)]);
    }
}

/// A way that stands still for some seconds is slow, and not broken.
#[test]
fn a_connection_that_stands_still_for_a_while_is_not_given_up() {
    let ground = Ground::new(Share::Divided, 2);
    let client = Client::builder(ground.proxy.url()).give_up_after(Duration::ZERO).connect().unwrap();
    for to in [To::Server, To::Client] {
        // Behind the first batches.
        let at = if to == To::Server { ground.bytes()[0] - 100 } else { 6000 };
        ground.proxy.trouble([Trouble::Stall(to, at, Duration::from_secs(3))]);
        let lane = client.resume(ground.feed.ticket(0)).unwrap();
        assert_eq!(rest(lane), ground.due, "{to:?}");
    }
}

/// Neither end is told: each finds out by asking.
#[test]
fn a_connection_through_which_nothing_comes_is_given_up() {
    let ways = [To::Server, To::Client].map(|to| {
        thread::spawn(move || {
            let ground = Ground::new(Share::Divided, 2);
            let bytes = ground.bytes();
            // Among the acknowledgements, and in the middle of a batch.
            let at = if to == To::Server { bytes[0] - 100 } else { bytes[1] / 2 };
            ground.check(&[Trouble::Freeze(to, at)]);
            // The server has noticed as well.
            until_empty(&ground.served.server);
        })
    });
    for way in ways {
        must_end("a connection that is silent", move || way.join().unwrap());
    }
}

/// Which troubles a lane's connections have, and what its consumer does.
#[derive(Clone, Debug)]
struct Schedule {
    troubles: Vec<Trouble>,
    window: usize,
    /// How many batches the consumer keeps while it takes more.
    kept: usize,
    /// Whether it says that it is done with a batch as soon as it has it.
    acknowledges: bool,
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let trouble = prop_oneof![
        3 => (0..1500_u64).prop_map(|at| Trouble::Cut(To::Server, at)),
        2 => (0..3000_u64).prop_map(|at| Trouble::Cut(To::Client, at)),
        4 => (0..25_000_u64).prop_map(|at| Trouble::Cut(To::Client, at)),
        1 => (1..50_usize).prop_map(Trouble::Crumbs),
    ];
    let troubles = proptest::collection::vec(trouble, 1..6);
    (troubles, 1..6_usize, 0..4_usize, any::<bool>())
        .prop_map(|(troubles, window, kept, acknowledges)| Schedule { troubles, window, kept, acknowledges })
}

/// Takes all batches, and looks at each once more before it is dropped: its memory stays as it is until then.
fn consume(lane: &mut RemoteLane, schedule: &Schedule) -> Vec<Seen> {
    let (mut seen, mut kept) = (Vec::new(), VecDeque::new());
    while let Some(batch) = lane.next() {
        let batch = batch.unwrap();
        seen.push(Seen::remote(&batch));
        if schedule.acknowledges {
            lane.acknowledge();
        }
        kept.push_back((seen.len() - 1, batch));
        if kept.len() > schedule.kept {
            let (number, batch) = kept.pop_front().unwrap();
            assert_eq!(Seen::remote(&batch), seen[number], "{schedule:?}");
        }
    }
    seen
}

#[test]
fn whatever_is_drawn_each_batch_comes_once() {
    let ground = Ground::new(Share::Divided, 1);
    let request = request(&shuffled());
    let config = ProptestConfig {
        cases: sample::times(100, 30),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, random).run(&schedules(), |schedule| {
        ground.proxy.trouble([]);
        let mut lane = {
            let feed = open(&ground.proxy, &request, schedule.window);
            ground.proxy.trouble(schedule.troubles.iter().copied());
            feed.lane(0).unwrap()
        };
        let drawn = schedule.clone();
        let seen = must_end("a lane", move || consume(&mut lane, &drawn));
        prop_assert_eq!(&seen, &ground.due);
        Ok(())
    });
    outcome.unwrap();
    until_empty(&ground.served.server);
}

/// In step, one of two is cut off, again and again: it loses nothing, and neither does the other.
#[test]
fn clients_in_step_lose_nothing_either() {
    let ground = Ground::new(Share::InStep { clients: NonZeroUsize::new(2).unwrap() }, 2);
    let steady = ground.served.client();
    for seed in 0..sample::times(20, 8) {
        let mut lane = ground.feed.lane(0).unwrap();
        let other = steady.resume(ground.feed.ticket(0)).unwrap();
        until_clients(&ground.served.server, &[2]);
        let mut seen = some(&mut lane, 1);
        // From here on, it is cut at each connection.
        let at = |number: u64| 900 + (seed * 7919 + number * 1543) % 9000;
        ground.proxy.trouble((0..4).map(|number| Trouble::Cut(To::Client, at(number))));
        ground.proxy.cut_all();
        let both = all([lane, other], usize::MAX);
        seen.extend(both[0].iter().cloned());
        assert_eq!(seen, ground.due, "{seed}");
        assert_eq!(both[1], ground.due, "{seed}");
        until_empty(&ground.served.server);
    }
}

/// Starts a server at an address that another one had.
fn start_again(root: &Path, address: SocketAddr, key: &Path) -> Server {
    let start = Instant::now();
    loop {
        match Server::builder(root).listen(address).key_file(key).start() {
            Ok(server) => return server,
            // The system may have given the port to a connection, for a moment.
            Err(error) => assert!(start.elapsed() < hung_after(), "{error}"),
        }
        thread::yield_now();
    }
}

#[test]
fn a_server_that_comes_back_takes_its_old_tickets() {
    let served = Served::start(|builder, folder| builder.key_file(folder.join("key")));
    let due = only_lane(&served.root(), &shuffled());
    let client = served.client();
    let feed = client.open(&request(&shuffled())).unwrap();
    let mut lane = feed.lane(0).unwrap();
    let mut seen = some(&mut lane, 3);
    let ticket = lane.ticket();
    let (root, key, address) =
        (served.root(), served.folder.path().join("key"), served.server.addresses()[0]);
    let Served { server, folder } = served;
    must_end("a server that is dropped", move || drop(server));
    let server = start_again(&root, address, &key);
    seen.extend(rest(lane));
    assert_eq!(seen, due);
    // Two of the three were acknowledged.
    for _ in 0..2 {
        assert_eq!(rest(client.resume(&ticket).unwrap()), due[2..]);
    }
    assert_eq!(rest(client.resume(feed.ticket(0)).unwrap()), due);
    until_empty(&server);
    drop((server, folder));
}

/// It is killed again and again; each time, another one has the address, the data and the key.
#[test]
fn a_lane_outlives_its_servers() {
    let served = Served::start(|builder, folder| builder.key_file(folder.join("key")));
    let due = only_lane(&served.root(), &shuffled());
    let (root, key) = (served.root(), served.folder.path().join("key"));
    let proxy = Proxy::new(served.server.addresses()[0]);
    let mut lane = open(&proxy, &request(&shuffled()), 2).lane(0).unwrap();
    let Served { mut server, folder } = served;
    let mut seen = Vec::new();
    for count in [1, 2, 3, 1, 2] {
        seen.extend(some(&mut lane, count));
        let next =
            Server::builder(&root).listen("127.0.0.1:0".parse().unwrap()).key_file(&key).start().unwrap();
        proxy.redirect(next.addresses()[0]);
        server = next;
    }
    seen.extend(rest(lane));
    assert_eq!(seen, due);
    until_empty(&server);
    drop((proxy, server, folder));
}

#[test]
fn a_server_with_another_key_does_not_go_on_in_the_place_of_the_first() {
    let served = Served::plain();
    let proxy = Proxy::new(served.server.addresses()[0]);
    let due = only_lane(&served.root(), &shuffled());
    let mut lane = open(&proxy, &request(&shuffled()), 2).lane(0).unwrap();
    let mut seen = some(&mut lane, 2);
    let other = Server::builder(served.root()).listen("127.0.0.1:0".parse().unwrap()).start().unwrap();
    proxy.redirect(other.addresses()[0]);
    proxy.cut_all();
    let (more, error) = until_error(&mut lane);
    seen.extend(more);
    assert_eq!(seen, due[..seen.len()]);
    let status = refused(&error);
    assert_eq!(status.code, Code::InvalidArgument);
    assert!(status.message.contains("was not signed with this server's key"), "{status}");
    // The first still takes it.
    assert_eq!(rest(served.client().resume(&lane.ticket()).unwrap()), due[seen.len()..]);
    until_empty(&other);
}
