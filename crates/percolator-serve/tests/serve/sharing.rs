//! Who shares what: each rank one client's, all in step, or each what it is in time for.

use std::num::NonZeroUsize;
use std::time::Duration;

use percolator_serve::{Client, Code, Column, FeedRequest, Share};
use serde_json::json;

use crate::common::data::{RECORDS, images};
use crate::common::served::Served;
use crate::seen::{Seen, lanes, only_lane, spec};
use crate::together::{
    all, only_client, refused, request, rest, some, until, until_clients, until_empty, until_error,
};

/// How long tests wait for clients that do not come.
const SOON: Duration = Duration::from_millis(300);

fn in_step(clients: usize) -> Share {
    Share::InStep { clients: NonZeroUsize::new(clients).unwrap() }
}

/// A feed of the images for so many epochs, each in an order of its own.
fn shuffled(epochs: u64) -> percolator::feed::FeedSpec {
    spec(images(json!({"schedule": {"epochs": epochs, "shuffle": {"by": "global"}}})))
}

/// A feed of the images for two ranks.
fn divided(schedule: &serde_json::Value) -> percolator::feed::FeedSpec {
    spec(images(json!({"devices": ["host:0", "host:1"], "schedule": schedule})))
}

#[test]
fn each_rank_of_a_divided_feed_is_one_clients() {
    const MOST: usize = 20;
    let served = Served::plain();
    let planned = json!({"epochs": 3, "shuffle": {"by": "global"}});
    // A plan; Caffe's order for one pass, whose last batches are short; and Caffe's order without an end.
    for schedule in [planned, json!({"once": true}), json!({})] {
        let feed = divided(&schedule);
        let due = lanes(&served.root(), &feed, MOST);
        let clients = [served.client(), served.client()];
        let ranks = clients.iter().enumerate();
        let taken = ranks.map(|(rank, client)| client.open(&request(&feed)).unwrap().lane(rank).unwrap());
        let taken: Vec<_> = taken.collect();
        // One reader deals to both.
        let status = until_clients(&served.server, &[2]);
        assert_eq!((status.feeds[0].ranks, status.feeds[0].share), (2, Share::Divided));
        let mut ranks: Vec<_> = status.feeds[0].clients.iter().map(|client| client.rank).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1]);
        let seen = all(taken, MOST);
        assert_eq!(seen, due, "{schedule}");
        until_empty(&served.server);
        if schedule["once"] == true {
            let mut records: Vec<_> = seen.iter().flatten().flat_map(|batch| batch.records.clone()).collect();
            records.sort_unstable();
            let each: Vec<_> = (0..u64::from(RECORDS)).map(|position| (0, position)).collect();
            assert_eq!(records, each);
        }
    }
}

#[test]
fn a_rank_that_somebody_has_is_a_feed_of_its_own() {
    let served = Served::plain();
    let feed = divided(&json!({"epochs": 2}));
    let due = lanes(&served.root(), &feed, usize::MAX);
    let client = served.client();
    let open = || client.open(&request(&feed)).unwrap();
    let first = [open().lane(0).unwrap(), open().lane(1).unwrap()];
    until_clients(&served.server, &[2]);
    let mut third = open().lane(0).unwrap();
    until_clients(&served.server, &[2, 1]);
    // Its other rank may be behind by a ring.
    assert_eq!(some(&mut third, 3), due[0][..3]);
    assert_eq!(all(first, usize::MAX), due);
    until_clients(&served.server, &[1]);
    drop(third);
    until_empty(&served.server);
}

#[test]
fn ranks_that_nobody_takes_hold_nobody_up() {
    let served = Served::start(|builder, _| builder.join_within(SOON));
    // More batches than a rank may be ahead of the other.
    let feed = divided(&json!({"epochs": 8}));
    let due = lanes(&served.root(), &feed, usize::MAX);
    for share in [Share::Divided, in_step(1)] {
        let opened = served.client().open(&request(&feed).share(share)).unwrap();
        assert_eq!(rest(opened.lane(1).unwrap()), due[1], "{share:?}");
        until_empty(&served.server);
    }
}

#[test]
fn a_rank_whose_client_leaves_holds_nobody_up() {
    let served = Served::plain();
    let feed = divided(&json!({"epochs": 8}));
    let due = lanes(&served.root(), &feed, usize::MAX);
    let opened = served.client().open(&request(&feed)).unwrap();
    let (mut leaves, stays) = (opened.lane(0).unwrap(), opened.lane(1).unwrap());
    until_clients(&served.server, &[2]);
    assert_eq!(some(&mut leaves, 2), due[0][..2]);
    let ticket = leaves.ticket();
    drop(leaves);
    assert_eq!(rest(stays), due[1]);
    // Who left goes on with a lane of its own.
    assert_eq!(rest(served.client().resume(&ticket).unwrap()), due[0][1..]);
    until_empty(&served.server);
}

#[test]
fn clients_in_step_get_the_same_batches_from_the_first() {
    let served = Served::plain();
    let feed = shuffled(3);
    let due = only_lane(&served.root(), &feed);
    let request = request(&feed).share(in_step(2));
    let first = served.client().open(&request).unwrap().lane(0).unwrap();
    until_clients(&served.server, &[1]);
    // The first batch waits for both.
    let status = served.server.status();
    assert_eq!((only_client(&status).batches, only_client(&status).unacknowledged), (0, 0));
    let second = served.client().open(&request).unwrap().lane(0).unwrap();
    let status = until_clients(&served.server, &[2]);
    assert_eq!(status.feeds[0].share, in_step(2));
    assert_eq!(all([first, second], usize::MAX), [due.clone(), due]);
    until_empty(&served.server);
}

#[test]
fn who_does_not_come_is_waited_for_no_longer_than_is_set() {
    let served = Served::start(|builder, _| builder.join_within(SOON));
    let feed = shuffled(1);
    let due = only_lane(&served.root(), &feed);
    let opened = served.client().open(&request(&feed).share(in_step(3))).unwrap();
    let two = [opened.lane(0).unwrap(), opened.lane(0).unwrap()];
    let seen = all(two, usize::MAX);
    // If this machine stands still for so long, the second comes late.
    assert!(due.ends_with(&seen[0]) && due.ends_with(&seen[1]), "{seen:?}");
    assert!(seen.contains(&due), "{seen:?}");
}

#[test]
fn who_comes_late_begins_a_feed_or_joins_with_a_ticket() {
    let served = Served::plain();
    let feed = shuffled(6);
    let due = only_lane(&served.root(), &feed);
    let request = request(&feed).share(in_step(1));
    let mut first = served.client().open(&request).unwrap().lane(0).unwrap();
    assert_eq!(some(&mut first, 6), due[..6]);
    // The sixth is not acknowledged, so it is kept.
    let acknowledged = || {
        let status = served.server.status();
        only_client(&status).batches.saturating_sub(only_client(&status).unacknowledged)
    };
    until("five acknowledged batches", acknowledged, |&count| count == 5);
    let late = served.client().open(&request).unwrap().lane(0).unwrap();
    until_clients(&served.server, &[1, 1]);
    let joins = served.client().resume(&first.ticket()).unwrap();
    until_clients(&served.server, &[2, 1]);
    let seen = all([first, late, joins], usize::MAX);
    assert_eq!((&seen[0][..], &seen[1], &seen[2][..]), (&due[6..], &due, &due[5..]));
}

#[test]
fn who_stalls_is_let_go_and_goes_on_with_its_ticket() {
    let served = Served::start(|builder, _| builder.patience(Duration::from_millis(500)).join_within(SOON));
    let feed = shuffled(6);
    let due = only_lane(&served.root(), &feed);
    let request = request(&feed).share(in_step(2));
    let steady = served.client().open(&request).unwrap().lane(0).unwrap();
    let mut stalls = served.impatient_client().open(&request).unwrap().lane(0).unwrap();
    let mut taken = some(&mut stalls, 1);
    // More than the window: it would wait for ever, were the other not let go.
    assert_eq!(rest(steady), due);
    let (more, error) = until_error(&mut stalls);
    taken.extend(more);
    let status = refused(&error);
    assert_eq!(status.code, Code::DeadlineExceeded, "{status}");
    assert!(status.message.contains("neither took nor acknowledged a batch for 500ms"), "{status}");
    assert!(taken.len() <= 3 && taken == due[..taken.len()], "{taken:?}");
    let again = served.impatient_client().resume(&stalls.ticket()).unwrap();
    assert_eq!(rest(again), due[taken.len()..]);
    until_empty(&served.server);
    // A lane that does not give up at once goes on by itself.
    let steady = served.client().open(&request).unwrap().lane(0).unwrap();
    let mut stalls = served.client().open(&request).unwrap().lane(0).unwrap();
    let mut taken = some(&mut stalls, 1);
    assert_eq!(rest(steady), due);
    taken.extend(rest(stalls));
    assert_eq!(taken, due);
    until_empty(&served.server);
}

#[test]
fn who_is_slow_in_a_window_misses_batches_and_is_told_how_many() {
    let served = Served::plain();
    let feed = shuffled(6);
    let due = only_lane(&served.root(), &feed);
    let request = request(&feed).share(Share::Windowed { batches: NonZeroUsize::new(3).unwrap() });
    let mut slow = served.client().open(&request).unwrap().lane(0).unwrap();
    let first = slow.next().unwrap().unwrap();
    assert_eq!((Seen::remote(&first), first.number(), first.missed()), (due[0].clone(), 0, 0));
    let fast = served.client().open(&request).unwrap().lane(0).unwrap();
    let status = until_clients(&served.server, &[2]);
    assert!(matches!(status.feeds[0].share, Share::Windowed { .. }));
    // It begins at what is kept, and nothing holds it up.
    let seen = rest(fast);
    assert!(due.ends_with(&seen) && seen.len() + 3 >= due.len(), "{} of {}", seen.len(), due.len());
    let (mut at, mut count, mut missed) = (0, 1, 0);
    for batch in slow {
        let batch = batch.unwrap();
        missed += batch.missed();
        at += 1 + usize::try_from(batch.missed()).unwrap();
        assert_eq!((Seen::remote(&batch), batch.number()), (due[at].clone(), count));
        count += 1;
    }
    assert_eq!((at + 1, count + missed), (due.len(), due.len() as u64), "the last one is kept");
    assert!(missed > 0);
    until_empty(&served.server);
}

#[test]
fn those_share_a_feed_whose_batches_are_the_same() {
    let served = Served::plain();
    let feed = shuffled(2);
    let due = only_lane(&served.root(), &feed);
    let shared = request(&feed).share(in_step(1));
    let join = |request: &FeedRequest| served.client().open(request).unwrap().lane(0).unwrap();
    // Neither threads nor memory change a byte, and columns are each client's own.
    let mut sized = feed.clone();
    (sized.threads, sized.prefetch) = (Some(1), Some(9));
    let same = [shared.clone(), request(&sized).share(in_step(1)), shared.clone().columns(Vec::new())];
    let mut lanes: Vec<_> = same.iter().map(join).collect();
    until_clients(&served.server, &[3]);
    let other = spec(images(json!({"schedule": {"epochs": 2}})));
    let others = [
        shared.clone().group("job-7"),
        shared.clone().share(in_step(2)),
        request(&other).share(in_step(1)),
        request(&feed),
    ];
    for (number, request) in others.iter().enumerate() {
        lanes.push(join(request));
        let mut counts = vec![3];
        counts.resize(number + 2, 1);
        until_clients(&served.server, &counts);
    }
    let groups = join(&others[0]);
    until_clients(&served.server, &[3, 2, 1, 1, 1]);
    // A rank of a divided feed is one client's.
    let second = join(&others[3]);
    until_clients(&served.server, &[3, 2, 1, 1, 1, 1]);
    // The first three, and what was begun after them: each gets its own.
    lanes.extend([groups, second]);
    let alone = lanes.remove(4);
    let seen = all(lanes, usize::MAX);
    let plain: Vec<_> = due.iter().cloned().map(Seen::without_records).collect();
    assert_eq!((&seen[0], &seen[1], &seen[2]), (&due, &due, &plain));
    assert_eq!((&seen[3], &seen[5], &seen[6], &seen[7]), (&due, &due, &due, &due));
    assert_eq!(seen[4], only_lane(&served.root(), &other));
    // It waits for a second.
    let status = until_clients(&served.server, &[1]);
    assert_eq!(only_client(&status).batches, 0);
    drop(alone);
    until_empty(&served.server);
}

#[test]
fn columns_say_which_rows_a_batch_has() {
    let served = Served::plain();
    let schedule = json!({"epochs": 2, "last_batch": "pad", "shuffle": {"by": "global"}});
    let feed = spec(images(json!({"schedule": schedule})));
    let due = only_lane(&served.root(), &feed);
    let columns = [Column::Mask, Column::Step, Column::Epoch, Column::Position, Column::Step];
    let client = served.client();
    let lane = client.open(&FeedRequest::feed(feed).columns(columns)).unwrap().lane(0).unwrap();
    let batches: Vec<_> = lane.map(Result::unwrap).collect();
    assert_eq!(batches.len(), due.len());
    for (batch, due) in batches.iter().zip(&due) {
        assert_eq!(Seen::remote(batch), *due);
        let step = due.step.unwrap();
        assert_eq!((batch.step(), batch.epoch()), (Some(step), Some(step.epoch)));
        assert_eq!(batch.get::<u64>("percolator.step").unwrap(), vec![step.step; due.rows]);
        let mask: Vec<_> = (0..due.rows).map(|row| u8::from(row < due.records.len())).collect();
        assert_eq!(batch.get::<u8>("percolator.mask").unwrap(), mask);
        // Padding has zeros.
        assert!(batch.positions().unwrap()[due.records.len()..].iter().all(|&position| position == 0));
    }
    assert_eq!((due[5].rows, due[5].records.len()), (4, 2));
}

/// What a client asks for is bounded by the server: it holds no more than the smaller of the two windows.
#[test]
fn a_client_holds_no_more_than_either_window() {
    let served = Served::start(|builder, _| builder.window(NonZeroUsize::new(3).unwrap()));
    let feed = shuffled(3);
    let due = only_lane(&served.root(), &feed);
    for (asked, held) in [(1, 1), (2, 2), (3, 3), (64, 3)] {
        let client = Client::builder(served.url()).window(NonZeroUsize::new(asked).unwrap());
        let mut lane = client.connect().unwrap().open(&request(&feed)).unwrap().lane(0).unwrap();
        let of_client = || {
            let status = served.server.status();
            let clients = status.feeds.iter().flat_map(|feed| &feed.clients);
            clients.map(|client| (client.batches, client.unacknowledged)).next()
        };
        until("as many as it may hold", of_client, |&seen| seen == Some((held, held)));
        let mut seen = some(&mut lane, 2);
        // The first is acknowledged, and one more comes for it.
        until("one more", of_client, |&seen| seen == Some((held + 1, held)));
        seen.extend(rest(lane));
        assert_eq!(seen, due, "{asked}");
        until_empty(&served.server);
    }
}
