//! What a server gives at most, what it makes of nonsense, and how it ends.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use percolator::feed::FeedSpec;
use percolator_files::shown;
use percolator_serve::{Client, ClientError, Code, FeedRequest, Limits, Server, Share, Tls};
use serde_json::json;

use crate::common::data::{DAMAGED, LONG_FIELD, images};
use crate::common::served::Served;
use crate::process::{hung_after, must_end};
use crate::proxy::Proxy;
use crate::raw::{Connection, Pieces, Said, Ticket, answer_to, framed, get, messages};
use crate::seen::{failing, only_lane, spec};
use crate::together::{refused, request, rest, some, until, until_clients, until_empty, until_error};

fn limited(limit: impl FnOnce(&mut Limits)) -> Served {
    let mut limits = Limits::default();
    limit(&mut limits);
    Served::start(|builder, _| builder.limits(limits))
}

/// A feed of the images for so many epochs.
fn epochs(epochs: u64) -> FeedSpec {
    spec(images(json!({"schedule": {"epochs": epochs}})))
}

fn in_step(clients: usize) -> Share {
    Share::InStep { clients: NonZeroUsize::new(clients).unwrap() }
}

/// What a lane is refused with.
fn refusal(client: &Client, request: &FeedRequest) -> (Code, String) {
    let error = match client.open(request) {
        Ok(feed) => feed.lane(0).unwrap().next().unwrap().unwrap_err(),
        Err(error) => error,
    };
    let status = refused(&error);
    (status.code, status.message.clone())
}

#[test]
fn there_are_no_more_clients_than_are_allowed() {
    let served = limited(|limits| limits.clients = 2);
    let (client, request) = (served.client(), request(&epochs(9)).share(in_step(1)));
    let mut taken: Vec<_> = (0..2).map(|_| client.open(&request).unwrap().lane(0).unwrap()).collect();
    until_clients(&served.server, &[2]);
    let (code, said) = refusal(&client, &request);
    assert_eq!(
        (code, &*said),
        (Code::ResourceExhausted, "2 clients are here, and no more may be: try again later")
    );
    // One that leaves makes room.
    taken.pop();
    until_clients(&served.server, &[1]);
    taken.push(client.open(&request).unwrap().lane(0).unwrap());
    until_clients(&served.server, &[2]);
    drop(taken);
    until_empty(&served.server);
}

#[test]
fn there_are_no_more_feeds_than_are_allowed() {
    let served = limited(|limits| limits.feeds = 1);
    let (client, request) = (served.client(), request(&epochs(9)));
    let due = only_lane(&served.root(), &epochs(9));
    let mut lane = client.open(&request).unwrap().lane(0).unwrap();
    let mut seen = some(&mut lane, 1);
    let (code, said) = refusal(&client, &request.clone().group("another"));
    assert!(code == Code::ResourceExhausted && said.starts_with("1 feeds run here"), "{code}: {said}");
    seen.extend(rest(lane));
    assert_eq!(seen, due);
    until_empty(&served.server);
    assert_eq!(rest(client.open(&request.group("another")).unwrap().lane(0).unwrap()), due);
}

#[test]
fn feeds_have_no_more_memory_than_is_allowed_and_are_told_how_much_that_is() {
    let feed = request(&epochs(9));
    let needed = {
        let served = limited(|limits| limits.threads = 2);
        served.client().open(&feed).unwrap().memory_bytes()
    };
    let free = needed / 2;
    let served = limited(|limits| {
        limits.threads = 2;
        limits.memory_bytes = needed + free;
    });
    let client = served.client();
    let mut lane = client.open(&feed).unwrap().lane(0).unwrap();
    some(&mut lane, 1);
    let status = served.server.status();
    assert_eq!((status.memory_bytes, status.memory_limit_bytes), (needed, needed + free));
    let (code, said) = refusal(&client, &feed.clone().group("another"));
    assert_eq!(code, Code::ResourceExhausted, "{said}");
    for number in [needed, free, needed + free] {
        assert!(said.contains(&number.to_string()), "{number}: {said}");
    }
    // In the same feed there is room.
    drop(lane);
    until_empty(&served.server);
    let batches = rest(client.open(&feed.group("another")).unwrap().lane(0).unwrap()).len();
    assert_eq!(batches, 9 * 6);
    // What a client sets for itself is its own business, in the words of a feed.
    let mut small = epochs(1);
    small.memory_limit = Some(10);
    let (code, said) = refusal(&client, &request(&small));
    assert!(said.contains("10 are allowed by memory_limit"), "{code}: {said}");
    // Numbers that no machine has.
    let mut large = epochs(1);
    large.prefetch = Some(usize::MAX);
    let (code, said) = refusal(&client, &request(&large));
    assert!(code != Code::Internal, "{code}: {said}");
}

#[test]
fn a_client_that_is_slowed_down_gets_all_and_is_not_let_go_for_it() {
    let feed = spec(images(json!({"batch_size": {"per_replica": 16}})));
    let mut limits = Limits::default();
    // The first batch has more than 6000 bytes, and takes longer than a client may do nothing.
    limits.client_bytes_per_second = Some(2000);
    let served = Served::start(|builder, _| builder.limits(limits).patience(Duration::from_secs(2)));
    let lane = served.impatient_client().open(&request(&feed)).unwrap().lane(0).unwrap();
    assert_eq!(rest(lane), only_lane(&served.root(), &feed));
}

#[test]
fn what_is_too_long_is_refused() {
    let served = Served::plain();
    let client = served.client();
    for (bytes, due) in [(1 << 20, Code::InvalidArgument), (3 << 20, Code::ResourceExhausted)] {
        let (code, said) = refusal(&client, &request(&epochs(1)).group("g".repeat(bytes)));
        assert!(code == due && said.contains("at most"), "{code}: {said}");
    }
    let mut connection = Connection::new(served.server.addresses()[0]);
    let ticket = Ticket { ticket: vec![b'x'; 2 << 20] };
    let outcome = connection.call("DoGet", Pieces::whole([framed(&ticket)]));
    assert!(outcome.code == 3 && outcome.message.contains("it does not begin with"), "{outcome:?}");
    let ticket = Ticket { ticket: vec![b'x'; (2 << 20) + 1] };
    let outcome = connection.call("DoGet", Pieces::whole([framed(&ticket)]));
    assert!(outcome.code == 3 && outcome.message.contains("it is too long"), "{outcome:?}");
    assert_eq!(rest(client.open(&request(&epochs(1))).unwrap().lane(0).unwrap()).len(), 6);
}

#[test]
fn calls_that_make_no_sense_are_answered() {
    let served = Served::plain();
    let mut connection = Connection::new(served.server.addresses()[0]);
    for (body, code, said) in [
        (vec![1, 0, 0, 0, 0], 12, "compressed messages are not read here"),
        (vec![0, 0xff, 0xff, 0xff, 0xff], 8, "a message of 4294967295 bytes"),
        (vec![0, 0, 0, 0, 9, 1, 2], 3, "the call ends within a message"),
        (vec![0, 0, 0], 3, "the call ends within a message"),
        (Vec::new(), 3, "has "),
        (vec![0, 0, 0, 0, 3, 0xff, 0xff, 0xff], 3, "this is no message of Flight's method"),
        (vec![0, 0, 0, 0, 0], 3, ""),
    ] {
        for method in ["DoGet", "DoExchange", "GetFlightInfo", "GetSchema"] {
            let outcome = connection.call(method, Pieces::whole([body.clone()]));
            assert_eq!(outcome.code, code, "{method} {body:?}: {outcome:?}");
            let is_said = outcome.message.contains(said) && outcome.bytes.is_empty();
            assert!(is_said, "{method} {body:?}: {outcome:?}");
        }
    }
    for (path, said) in [
        ("/arrow.flight.protocol.FlightService/DoPut", "this server has no DoPut"),
        ("/arrow.flight.protocol.FlightService/Handshake", "this server has no Handshake"),
        ("/grpc.health.v1.Health/Check", "speaks Arrow Flight"),
        ("/", "speaks Arrow Flight"),
    ] {
        let outcome = connection.call_at(path, Pieces::whole([]));
        assert!(outcome.code == 12 && outcome.message.contains(said), "{outcome:?}");
    }
    let action = Ticket { ticket: b"restart".to_vec() };
    let outcome = connection.call("DoAction", Pieces::whole([framed(&action)]));
    assert!(outcome.code == 12 && outcome.message.contains("there is no action"), "{outcome:?}");
}

#[test]
fn exchanges_that_make_no_sense_are_ended() {
    let served = Served::plain();
    let ticket = served.client().open(&request(&epochs(1))).unwrap().ticket(0).to_owned();
    let mut connection = Connection::new(served.server.addresses()[0]);
    let begin = || framed(&Said::first(&ticket, r#"{"window": 2}"#));
    for (first, code, said) in [
        (Said::more("{}"), 3, "has no descriptor"),
        (Said::first(&ticket, r#"{"acknowledged": 0}"#), 3, "is acknowledged before any was sent"),
        (Said::first(&ticket, "window"), 3, "a client says"),
        (Said::first(&ticket, r#"{"window": -1}"#), 3, "a client says"),
        (Said::first("", ""), 3, "no ticket of Percolator"),
        (Said::first("{}", ""), 3, "does not describe a feed"),
    ] {
        let outcome = connection.call("DoExchange", Pieces::open([framed(&first)]));
        assert!(outcome.code == code && outcome.message.contains(said), "{first:?}: {outcome:?}");
    }
    for (more, said) in [
        (r#"{"acknowledged": 99}"#, "batch 99 was acknowledged, and"),
        (r#"{"acknowledge": 0}"#, "a client says"),
        (r#"{"acknowledged": "0"}"#, "a client says"),
    ] {
        let pieces = Pieces::open([begin(), framed(&Said::more(more))]);
        let outcome = connection.call("DoExchange", pieces);
        assert!(outcome.code == 3 && outcome.message.contains(said), "{more}: {outcome:?}");
    }
    // A window of 0 is one of 1, and what says nothing is nothing.
    let first = Said::first(&ticket, r#"{"window": 0}"#);
    let answer = connection.begin("DoExchange", Pieces::open([framed(&first), framed(&Said::more(""))]));
    let held = || {
        let status = served.server.status();
        status.feeds.iter().flat_map(|feed| &feed.clients).map(|client| client.unacknowledged).next()
    };
    until("one batch that is not acknowledged", held, |held| *held == Some(1));
    drop((answer, connection));
    until_empty(&served.server);
}

/// It gets what it may hold, and then it is let go: nobody can acknowledge any more.
#[test]
fn a_client_that_says_nothing_more_is_let_go() {
    let served = Served::start(|builder, _| builder.patience(Duration::from_millis(300)));
    let client = served.client();
    let mut connection = Connection::new(served.server.addresses()[0]);
    let exchange = |epochs_of_feed| {
        let ticket = client.open(&request(&epochs(epochs_of_feed))).unwrap().ticket(0).to_owned();
        Pieces::whole([framed(&Said::first(&ticket, ""))])
    };
    let outcome = connection.call("DoExchange", exchange(2));
    assert!(outcome.code == 4 && outcome.message.contains("its last one waited for it"), "{outcome:?}");
    // The schema, and the server's window of batches.
    assert_eq!(messages(&outcome.bytes), 1 + 4);
    until_empty(&served.server);
    // A feed that fits the window is all there.
    let short = spec(images(json!({"batch_size": {"per_replica": 8}})));
    let ticket = client.open(&request(&short)).unwrap().ticket(0).to_owned();
    let first = Said::first(&ticket, "");
    let outcome = connection.call("DoExchange", Pieces::whole([framed(&first)]));
    assert_eq!((outcome.code, messages(&outcome.bytes)), (0, 1 + 3), "{}", outcome.message);
    // Without acknowledgements, all of it comes.
    let ticket = client.open(&request(&epochs(2))).unwrap().ticket(0).to_owned();
    let outcome = connection.call("DoGet", Pieces::whole([framed(&Ticket { ticket: ticket.into() })]));
    assert_eq!((outcome.code, messages(&outcome.bytes)), (0, 1 + 12), "{}", outcome.message);
    until_empty(&served.server);
}

/// Its system takes bytes and answers pings; nobody reads. It would keep a batch from all others for ever.
#[test]
fn who_takes_nothing_is_hung_up_on_and_holds_nobody_up() {
    let long = json!({
        "sources": [{"lmdb": {"path": "long"}}], "decoder": {"example": {"fields": LONG_FIELD}},
        "schedule": {"epochs": 3},
    });
    // Of the first feed, a batch's pieces wait until the window opens; of the second, all that a batch has is
    // on its way, and most of it stays on this side.
    for (feed, window) in [(epochs(3), 1024), (spec(images(long)), 4096)] {
        let times = |builder: percolator_serve::ServerBuilder| {
            builder.patience(Duration::from_millis(300)).join_within(Duration::from_secs(600))
        };
        let served = Served::start(|builder, _| times(builder));
        let due = only_lane(&served.root(), &feed);
        let opened = served.client().open(&request(&feed).share(in_step(2))).unwrap();
        let mut stalls = Connection::with_window(served.server.addresses()[0], window);
        let lane = opened.lane(0).unwrap();
        until_clients(&served.server, &[1]);
        let first = Said::first(opened.ticket(0), r#"{"window": 1}"#);
        let answer = stalls.begin("DoExchange", Pieces::open([framed(&first)]));
        until_clients(&served.server, &[2]);
        assert_eq!(rest(lane), due);
        stalls.is_hung_up_on();
        drop(answer);
        until_empty(&served.server);
        assert!(served.server.status().dismissed_total > 0);
    }
}

#[test]
fn what_is_not_http_is_hung_up_on() {
    let served = Served::plain();
    let address = served.server.addresses()[0];
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let garbage: [&[u8]; 6] = [
        b"HELO\r\n\r\n",
        b"GET\r\n\r\n",
        &[0xff; 100],
        b"PLM1\x02\0\0\0{}",
        // Frames of a type, a length and a stream that cannot be.
        &[&http2[..], &[0xff; 40]].concat(),
        &[&http2[..], &[0, 0, 4, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4]].concat(),
    ];
    for bytes in garbage {
        let answer = answer_to(address, bytes);
        let is_error = answer.is_empty() || answer.starts_with(b"HTTP/1.1 400") || bytes.starts_with(b"PRI");
        assert!(is_error, "{:?}: {:?}", shown::quoted(bytes).to_string(), String::from_utf8_lossy(&answer));
    }
    assert_eq!(get(address, "/nothing").0, 404);
    assert_eq!(rest(served.client().open(&request(&epochs(1))).unwrap().lane(0).unwrap()).len(), 6);
}

/// Places for connections are limited.
#[test]
fn a_connection_that_asks_for_nothing_is_hung_up_on() {
    let served = Served::plain();
    let address = served.server.addresses()[0];
    let silent = ["", "G", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
        .map(|begin| thread::spawn(move || answer_to(address, begin.as_bytes())));
    // One with HTTP/2 that answers pings, too.
    Connection::new(address).is_hung_up_on();
    for silent in silent {
        must_end("a silent connection", move || silent.join().unwrap());
    }
}

#[test]
fn plain_text_at_a_port_with_tls_is_no_answer() {
    let served = Served::start(|builder, folder| {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
        std::fs::write(&certificate, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        builder.tls(Tls::new(certificate, key))
    });
    let address = served.server.addresses()[0];
    let error = Client::connect(&served.url()).unwrap_err();
    assert!(matches!(error, ClientError::Unanswered { .. }), "{error}");
    let answer = answer_to(address, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    let url = format!("grpc+tls://localhost:{}", address.port());
    let client = Client::builder(url).authorities(served.folder.path().join("certificate.pem"));
    let feed = client.connect().unwrap().open(&request(&epochs(1))).unwrap();
    assert_eq!(rest(feed.lane(0).unwrap()), only_lane(&served.root(), &epochs(1)));
}

/// The place of a server, with a key that others have as well.
struct Keyed {
    root: PathBuf,
    key: PathBuf,
}

impl Keyed {
    fn of(served: &Served) -> Self {
        Keyed { root: served.root(), key: served.folder.path().join("key") }
    }

    fn start(&self) -> Server {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Server::builder(&self.root).listen(address).key_file(&self.key).start().unwrap()
    }
}

fn with_key(builder: percolator_serve::ServerBuilder, folder: &Path) -> percolator_serve::ServerBuilder {
    builder.key_file(folder.join("key"))
}

#[test]
fn who_is_drained_goes_on_at_another_server() {
    let first = Served::start(with_key);
    let second = Keyed::of(&first).start();
    let feed = epochs(4);
    let due = only_lane(&first.root(), &feed);
    let proxy = Proxy::new(first.server.addresses()[0]);
    let request = request(&feed);
    let mut goes_on = Client::connect(&proxy.url()).unwrap().open(&request).unwrap().lane(0).unwrap();
    let mut is_told = first.impatient_client().open(&request).unwrap().lane(0).unwrap();
    let mut seen = [some(&mut goes_on, 2), some(&mut is_told, 3)];
    until_clients(&first.server, &[1, 1]);
    assert_eq!(get(first.server.addresses()[0], "/readyz").0, 200);
    proxy.redirect(second.addresses()[0]);

    assert!(first.server.drain(hung_after()), "all leave when they are told to");
    let (more, error) = until_error(&mut is_told);
    seen[1].extend(more);
    let status = refused(&error);
    assert!(status.code == Code::Unavailable && status.message.contains("is about to end"), "{status}");
    let elsewhere = Client::connect(&format!("grpc://{}", second.addresses()[0])).unwrap();
    seen[1].extend(rest(elsewhere.resume(&is_told.ticket()).unwrap()));
    seen[0].extend(rest(goes_on));
    assert_eq!(seen, [due.clone(), due]);
    until_empty(&second);

    // Nobody begins here any more, and all who ask are told so.
    let status = until_empty(&first.server);
    assert!(status.is_draining);
    let client = first.impatient_client();
    assert!(client.status().unwrap().contains("\"is_draining\":true"));
    let (code, said) = refusal(&client, &request);
    assert!(code == Code::Unavailable && said.contains("about to end"), "{code}: {said}");
    let error = client.resume(&is_told.ticket()).unwrap().next().unwrap().unwrap_err();
    assert_eq!(refused(&error).code, Code::Unavailable);
}

#[test]
fn a_drain_waits_for_those_who_do_not_notice_and_hangs_up_on_them() {
    let served = Served::plain();
    let address = served.server.addresses()[0];
    let opened = served.client().open(&request(&epochs(2))).unwrap();
    let mut stalls = Connection::with_window(address, 1024);
    let first = Said::first(opened.ticket(0), "");
    let _answer = stalls.begin("DoExchange", Pieces::open([framed(&first)]));
    let batches = || served.server.status().feeds.iter().map(|feed| feed.clients[0].batches).sum::<u64>();
    until("a batch under way", batches, |&batches| batches == 1);
    assert!(!served.server.drain(Duration::ZERO), "it is still there");
    // Probes are told, and the server lives.
    let (status, text) = get(address, "/readyz");
    assert!(status == 503 && text.contains("draining"), "{status} {text}");
    assert_eq!(get(address, "/healthz").0, 200);
    let (status, text) = get(address, "/metrics");
    assert!(status == 200 && text.contains("percolator_serve_streams_total 1"), "{status} {text}");
    assert!(served.server.drain(hung_after()));
    stalls.is_hung_up_on();
}

#[test]
fn a_server_that_is_dropped_ends_at_once_whatever_runs() {
    let served = Served::plain();
    let feeds = [request(&epochs(0)), request(&epochs(0)).share(in_step(3)), request(&epochs(2))];
    let client = served.impatient_client();
    let mut lanes: Vec<_> = feeds.iter().map(|feed| client.open(feed).unwrap().lane(0).unwrap()).collect();
    some(&mut lanes[0], 3);
    let opened = client.open(&feeds[2]).unwrap();
    let mut stalls = Connection::with_window(served.server.addresses()[0], 1024);
    let first = Said::first(opened.ticket(0), "");
    let _answer = stalls.begin("DoExchange", Pieces::open([framed(&first)]));
    until("four clients", || served.server.status().streams_total, |&streams| streams == 4);
    // One that is just being served.
    let reading = lanes.remove(0);
    let reads = thread::spawn(move || {
        let mut lane = reading;
        until_error(&mut lane).1
    });
    let Served { server, folder } = served;
    must_end("a server that is dropped", move || drop(server));
    let errors = must_end("lanes without a server", move || {
        let others = lanes.iter_mut().map(|lane| until_error(lane).1);
        others.chain([reads.join().unwrap()]).collect::<Vec<_>>()
    });
    for error in errors {
        assert!(matches!(error, ClientError::GaveUp { .. }), "{error}");
    }
    stalls.is_hung_up_on();
    drop(folder);
}

#[test]
fn a_damaged_record_ends_a_feed_with_the_words_of_a_local_one() {
    let served = Served::plain();
    let root = served.root().canonicalize().unwrap();
    let damaged = json!({"sources": [{"lmdb": {"path": "damaged"}}]});
    let feed = spec(images(damaged.clone()));
    let (due, error) = failing(&root, &feed);
    assert_eq!(due.len(), usize::from(DAMAGED) / 4);
    let said = shown::with_sources(&error);
    for share in [Share::Divided, in_step(1)] {
        let mut lane = served.client().open(&request(&feed).share(share)).unwrap().lane(0).unwrap();
        let (seen, error) = until_error(&mut lane);
        assert_eq!(seen, due);
        let status = refused(&error);
        assert_eq!((status.code, &status.message), (Code::DataLoss, &said));
        until_empty(&served.server);
    }
    // Each rank gets all that comes before it, and the same error.
    let mut both = damaged;
    both["devices"] = json!(["host:0", "host:1"]);
    let both = spec(images(both));
    let opened = served.client().open(&request(&both)).unwrap();
    let ranks = [opened.lane(0).unwrap(), opened.lane(1).unwrap()]
        .map(|mut lane| thread::spawn(move || until_error(&mut lane)));
    for (seen, error) in ranks.map(|rank| must_end("a rank", move || rank.join().unwrap())) {
        assert_eq!((seen.len(), refused(&error).code), (1, Code::DataLoss));
        assert!(refused(&error).message.contains("damaged"), "{error}");
    }
    // A net's feed says it in the same way: the code is that of what is wrong.
    let net = "layer { name: \"data\" type: \"Data\" top: \"data\" top: \"label\" \
               data_param { source: \"damaged\" batch_size: 4 backend: LMDB } }";
    let mut lane =
        served.client().open(&FeedRequest::net(net, percolator::Phase::Train)).unwrap().lane(0).unwrap();
    let error = until_error(&mut lane).1;
    assert_eq!(refused(&error).code, Code::DataLoss, "{error}");
    until_empty(&served.server);
    // And data that are not there have a code of their own.
    let none = spec(images(json!({"sources": [{"lmdb": {"path": "nothing"}}]})));
    assert_eq!(refusal(&served.client(), &request(&none)).0, Code::NotFound);
}
