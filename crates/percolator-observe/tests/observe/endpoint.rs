//! The endpoint as Prometheus sees it, and the facade with the same numbers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use metrics_exporter_prometheus::PrometheusBuilder;
use percolator_files::shown;
use percolator_observe::metrics::{Endpoint, Facade, Feeds, describe, scrape};
use percolator_observe::{Numbers, parse};

use crate::feed;

/// Sends this and returns the head and the body of the answer.
fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn the_numbers_of_a_feed_are_served_while_it_runs() {
    let mut train = feed(400).epochs(1).build().unwrap();
    let handle = train.handle();
    let feeds = Feeds::new();
    feeds.put("train", handle.clone());
    let endpoint = Endpoint::serve(anywhere(), &feeds).unwrap();
    let address = endpoint.address();
    let mut before = 0;
    for step in train.steps() {
        drop(step.unwrap());
        let (head, body) = ask(address, "GET /metrics");
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
        let found = parse(&body).unwrap();
        assert_eq!((found.len(), &*found[0].0), (1, "train"));
        let taken = found[0].1.stats.records();
        assert_eq!(taken, before + 4, "{body}");
        before = taken;
    }
    assert_eq!(before, 400);
    drop(train);
    // Nothing changes any more: what is served is what the feed says.
    let found = scrape(&format!("http://{address}"), None).unwrap();
    assert_eq!(found, [("train".to_owned(), Numbers::of(&handle))]);
    assert_eq!(scrape(&format!("http://{address}/metrics/"), None).unwrap(), found);
    feeds.put("test", handle);
    assert_eq!(scrape(&format!("http://{address}/"), None).unwrap().len(), 2);
    feeds.remove("train");
    assert_eq!(scrape(&format!("http://{address}/"), None).unwrap()[0].0, "test");
}

#[test]
fn other_requests_are_answered_too() {
    let feeds = Feeds::new();
    let endpoint = Endpoint::serve(anywhere(), &feeds).unwrap();
    let address = endpoint.address();
    assert!(ask(address, "GET /").1.contains("/metrics"));
    assert!(ask(address, "GET /other").0.starts_with("HTTP/1.1 404"));
    let (head, body) = ask(address, "HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    let (head, _) = ask(address, "POST /metrics");
    assert!(head.starts_with("HTTP/1.1 405") && head.to_lowercase().contains("allow: get, head"), "{head}");
    assert!(ask(address, "no http at all").0.starts_with("HTTP/1.1 400"));
    // Clients that say nothing keep nobody else waiting.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (head, _) = ask(address, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    drop(endpoint);
    for mut stream in silent {
        assert!(!matches!(stream.read(&mut [0]), Ok(1..)), "a connection outlives its server");
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind(anywhere()).unwrap();
    let address = taken.local_addr().unwrap();
    let message = Endpoint::serve(address, &Feeds::new()).unwrap_err().to_string();
    assert!(message.contains(&address.to_string()) && message.contains("choose another"), "{message}");
}

#[test]
fn an_endpoint_that_has_no_feed_is_refused_with_a_reason() {
    let of = |url: &str| shown::with_sources(&scrape(url, None).unwrap_err());
    for url in ["", "127.0.0.1:9464", "http://", "https://127.0.0.1:9464", "file:///etc/passwd"] {
        assert!(of(url).contains("http://HOST:PORT"), "{url}");
    }
    let endpoint = Endpoint::serve(anywhere(), &Feeds::new()).unwrap();
    let address = endpoint.address();
    assert!(of(&format!("http://{address}")).contains("no feed of percolator"));
    assert!(of(&format!("http://{address}/other/page")).contains("404"));
    drop(endpoint);
    // Programs that are none of ours. One says nothing, and closes.
    let message = of(&other_program(|_| {}));
    assert!(message.contains("does the program run"), "{message}");
    // One speaks HTTP, and no metrics.
    let message = of(&other_program(|stream| {
        let page = "<html>\x1b[2J</html>";
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len()).unwrap();
    }));
    assert!(message.contains("line 1") && !message.contains('\x1b'), "{message:?}");
    // One sends its readers elsewhere.
    let elsewhere = TcpListener::bind(anywhere()).unwrap();
    let location = format!("http://{}/metrics", elsewhere.local_addr().unwrap());
    let message = of(&other_program(move |stream| {
        write!(stream, "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").unwrap();
    }));
    assert!(message.contains("redirects to ") && message.contains("not followed"), "{message}");
    elsewhere.set_nonblocking(true).unwrap();
    assert!(elsewhere.accept().is_err(), "nobody came");
    // One has metrics without end.
    let message = of(&other_program(|stream| {
        let lines = "go_threads 7\n".repeat(10_000);
        let mut sent = write!(stream, "HTTP/1.1 200 OK\r\n\r\n");
        while sent.is_ok() {
            sent = stream.write_all(lines.as_bytes());
        }
    }));
    assert!(message.contains("16777216 bytes at the most"), "{message}");
}

/// Starts a program that answers one request in this way; returns its address.
fn other_program(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
    let other = TcpListener::bind(anywhere()).unwrap();
    let address = other.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        answer(&mut stream);
    });
    format!("http://{address}")
}

#[test]
fn the_facade_has_the_same_numbers() {
    let mut train = feed(40).epochs(1).devices(["host:0", "host:1"].map(|name| name.parse().unwrap()));
    train = train.threads(2);
    let mut train = train.build().unwrap();
    let handle = train.handle();
    train.steps().for_each(|step| drop(step.unwrap()));
    drop(train);
    let recorder = PrometheusBuilder::new().build_recorder();
    let numbers = Numbers::of(&handle);
    metrics::with_local_recorder(&recorder, || {
        describe();
        // Twice: only what has come since is added.
        let mut facade = Facade::default();
        facade.publish("train", &numbers);
        facade.publish("train", &numbers);
    });
    let text = recorder.handle().render();
    assert!(text.contains("# HELP percolator_records_total Records in those batches."), "{text}");
    let mut found = parse(&text).unwrap();
    assert_eq!(found.len(), 1);
    let (name, mut found) = found.remove(0);
    // The recorder has an order of its own.
    let mut due = numbers;
    due.budget.sort();
    found.budget.sort();
    assert_eq!((&*name, found), ("train", due));
}

/// A seek begins new counters, from 0.
#[test]
fn the_facades_counters_go_on_after_a_seek() {
    let after = |records: u64| {
        let mut feed = feed(records).epochs(1).build().unwrap();
        let handle = feed.handle();
        feed.steps().for_each(|step| drop(step.unwrap()));
        Numbers::of(&handle)
    };
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut facade = Facade::default();
    metrics::with_local_recorder(&recorder, || {
        describe();
        facade.publish("train", &after(40));
        facade.publish("train", &after(8));
    });
    let found = parse(&recorder.handle().render()).unwrap();
    let records: u64 = found[0].1.stats.lanes.iter().map(|lane| lane.records).sum();
    assert_eq!(records, 48);
}
