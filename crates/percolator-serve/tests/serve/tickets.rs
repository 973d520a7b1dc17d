//! Tickets: what the server signed goes on where it says, and nothing else goes on anywhere.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use percolator::feed::FeedSpec;
use percolator_files::shown;
use percolator_serve::{Client, ClientError, Code, FeedRequest};
use ring::hmac;
use serde_json::json;

use crate::common::data::images;
use crate::common::served::Served;
use crate::process::sample;
use crate::seen::{Seen, lanes, only_lane, spec};
use crate::together::{refused, request, rest, until_empty};

const KEY: [u8; 32] = [7; 32];

/// Signs as a server with this key does.
struct Signer(hmac::Key);

impl Signer {
    fn new(key: &[u8]) -> Self {
        Signer(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    fn signed(&self, text: &str) -> String {
        format!("{text}.{}", BASE64.encode(hmac::sign(&self.0, text.as_bytes())))
    }

    /// The ticket of a rank.
    fn ticket(&self, request: &FeedRequest, rank: usize) -> String {
        let stream = json!({"request": request, "rank": rank}).to_string();
        self.signed(&format!("percolator1.{}", BASE64.encode(stream)))
    }

    /// The ticket of what is at this position of a stream.
    fn at(&self, ticket: &str, position: &str) -> String {
        self.signed(&format!("{ticket}.{position}"))
    }
}

/// A server whose key is known.
fn served() -> Served {
    Served::start(|builder, folder| {
        let key = folder.join("key");
        std::fs::write(&key, KEY).unwrap();
        builder.key_file(key)
    })
}

fn shuffled(devices: &[&str]) -> FeedSpec {
    let schedule = json!({"epochs": 2, "shuffle": {"by": "global"}});
    spec(images(json!({"devices": devices, "schedule": schedule})))
}

fn taken(client: &Client, ticket: &str) -> Vec<Seen> {
    rest(client.resume(ticket).unwrap())
}

/// Checks that a ticket is no good, and returns why. Some the client refuses by itself.
#[track_caller]
fn refusal(client: &Client, ticket: &str) -> String {
    let error = match client.resume(ticket) {
        Err(error @ ClientError::Ticket { .. }) => return error.to_string(),
        Err(error) => panic!("{ticket}: {}", shown::with_sources(&error)),
        Ok(mut lane) => match lane.next() {
            Some(Err(error)) => error,
            Some(Ok(batch)) => panic!("{ticket} is taken: {:?}", Seen::remote(&batch)),
            None => panic!("{ticket} is at its end"),
        },
    };
    let status = refused(&error);
    assert_eq!(status.code, Code::InvalidArgument, "{ticket}: {status}");
    status.message.clone()
}

#[test]
fn a_ticket_goes_on_exactly_where_it_says_as_often_as_it_is_shown() {
    let (served, signer) = (served(), Signer::new(&KEY));
    let feed = shuffled(&["host:0"]);
    let (client, due) = (served.impatient_client(), only_lane(&served.root(), &feed));
    let ticket = client.open(&request(&feed)).unwrap().ticket(0).to_owned();
    assert_eq!(due.len(), 12);
    for (position, at) in
        [("0-0", 0), ("0-3", 3), ("0-5", 5), ("1-0", 6), ("1-5", 11), ("end", 12), ("0-3", 3)]
    {
        assert_eq!(taken(&client, &signer.at(&ticket, position)), due[at..], "{position}");
    }
    // Each that came with a batch is the one of what is after it.
    let mut lane = client.resume(&ticket).unwrap();
    for at in 0..due.len() {
        let batch = lane.next().unwrap().unwrap();
        assert_eq!(Seen::remote(&batch), due[at]);
        lane.acknowledge();
        if at % 5 == 0 || at + 1 == due.len() {
            assert_eq!(taken(&client, &lane.ticket()), due[at + 1..], "{at}");
        }
    }
    drop(lane);
    until_empty(&served.server);
}

#[test]
fn there_is_nothing_past_the_end() {
    let (served, signer) = (served(), Signer::new(&KEY));
    let client = served.impatient_client();
    let most = u64::MAX;
    let ticket = client.open(&request(&shuffled(&["host:0"]))).unwrap().ticket(0).to_owned();
    for position in ["0-6", "0-99", "1-6", "2-0", "9-0", &format!("{most}-{most}"), &format!("0-{most}")] {
        let said = refusal(&client, &signer.at(&ticket, position));
        assert!(said.contains("step"), "{position}: {said}");
    }
    // In Caffe's order, steps are counted; those past the end of a single pass are none.
    let once = spec(images(json!({"schedule": {"once": true}})));
    let ticket = client.open(&request(&once)).unwrap().ticket(0).to_owned();
    let due = only_lane(&served.root(), &once);
    assert_eq!(taken(&client, &signer.at(&ticket, "0-5")), due[5..]);
    for position in ["0-6", "0-1000", "end"] {
        assert!(taken(&client, &signer.at(&ticket, position)).is_empty(), "{position}");
    }
    for position in ["1-0", &format!("0-{most}")] {
        refusal(&client, &signer.at(&ticket, position));
    }
    until_empty(&served.server);
}

#[test]
fn what_the_server_did_not_sign_is_refused() {
    let (served, signer) = (served(), Signer::new(&KEY));
    let client = served.impatient_client();
    let ticket = client.open(&request(&shuffled(&["host:0"]))).unwrap().ticket(0).to_owned();
    let later = signer.at(&ticket, "0-3");
    for at in sample::some_of(0..later.len(), later.len() / 20) {
        let mut changed = later.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        refusal(&client, str::from_utf8(&changed).unwrap());
    }
    // Another server's, and this one's with another server's position.
    let other = Signer::new(&[8; 32]);
    let stranger = other.ticket(&request(&shuffled(&["host:0"])), 0);
    for forged in [stranger.clone(), other.at(&stranger, "0-3"), other.at(&ticket, "0-3")] {
        let said = refusal(&client, &forged);
        assert!(said.contains("was not signed with this server's key") && said.contains("--key"), "{said}");
    }
    // Signed, and still none.
    for position in ["", "0", "0-", "-0", "0-0-0", "0-x", "End", "99999999999999999999-0"] {
        let said = refusal(&client, &signer.at(&ticket, position));
        assert!(said.contains("its position is none"), "{position}: {said}");
    }
    let said = refusal(&client, &signer.signed(&format!("percolator1.{}", BASE64.encode("{}"))));
    assert!(said.contains("does not describe a feed"), "{said}");
    let said = refusal(&client, &signer.signed("percolator2.AAAA"));
    assert!(said.contains("percolator1"), "{said}");
}

#[test]
fn a_position_is_of_one_rank_alone() {
    let (served, signer) = (served(), Signer::new(&KEY));
    let feed = shuffled(&["host:0", "host:1"]);
    let (client, due) = (served.impatient_client(), lanes(&served.root(), &feed, usize::MAX));
    let opened = client.open(&request(&feed)).unwrap();
    for (rank, due) in due.iter().enumerate() {
        assert_eq!(taken(&client, &signer.at(opened.ticket(rank), "0-2")), due[2..]);
    }
    // The position of the one, put after the ticket of the other.
    let of_other = signer.at(opened.ticket(1), "0-2");
    let position = of_other.strip_prefix(opened.ticket(1)).unwrap();
    let said = refusal(&client, &format!("{}{position}", opened.ticket(0)));
    assert!(said.contains("was not signed"), "{said}");
    let said = refusal(&client, &signer.ticket(&request(&feed), 7));
    assert_eq!(said, "there is no rank 7: the feed has 2, counted from 0");
    until_empty(&served.server);
}
