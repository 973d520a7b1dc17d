//! Messages as bytes. A field begins with eight times its number, and 2 more if its length follows.

use super::*;

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { cluster_id: 0, revision })
}

#[test]
fn a_range_is_asked_for() {
    let request = RangeRequest {
        key: b"a".to_vec(),
        range_end: b"bc".to_vec(),
        limit: 3,
        revision: 400,
        count_only: true,
    };
    let due = [
        &[0x0a, 1, b'a'][..],
        &[0x12, 2, b'b', b'c'],
        &[0x18, 3],
        // 400 is 3 times 128, and 16.
        &[0x20, 0x80 + 16, 3],
        &[0x48, 1],
    ];
    assert_eq!(request.encode_to_vec(), due.concat());
}

#[test]
fn a_transaction_is_asked_for() {
    let compare = |result: CompareResult, target: CompareTarget, key: u8, number| Compare {
        result: result.into(),
        target: target.into(),
        key: vec![key],
        target_union: Some(number),
    };
    let operation = |operation| RequestOp { request: Some(operation) };
    let request = TxnRequest {
        compare: vec![
            compare(CompareResult::Less, CompareTarget::Lease, b'l', Compared::Lease(9)),
            compare(CompareResult::Equal, CompareTarget::Mod, b'm', Compared::ModRevision(10)),
            compare(CompareResult::Equal, CompareTarget::Create, b'c', Compared::CreateRevision(0)),
        ],
        success: vec![
            operation(Operation::Put(PutRequest { key: b"p".to_vec(), value: b"vw".to_vec(), lease: 7 })),
            operation(Operation::DeleteRange(DeleteRangeRequest { key: b"d".to_vec() })),
        ],
        failure: vec![operation(Operation::Range(RangeRequest {
            key: b"r".to_vec(),
            ..RangeRequest::default()
        }))],
    };
    let due = [
        // Less is 2, and the lease 4.
        &[0x0a, 9, 0x08, 2, 0x10, 4, 0x1a, 1, b'l', 0x40, 9][..],
        // Equal is 0, which is left out; the revision of the last change is 2.
        &[0x0a, 7, 0x10, 2, 0x1a, 1, b'm', 0x30, 10],
        // The revision of the first put is 1. That it is compared with 0 is not left out.
        &[0x0a, 7, 0x10, 1, 0x1a, 1, b'c', 0x28, 0],
        &[0x12, 11, 0x12, 9, 0x0a, 1, b'p', 0x12, 2, b'v', b'w', 0x18, 7],
        &[0x12, 5, 0x1a, 3, 0x0a, 1, b'd'],
        &[0x1a, 5, 0x0a, 3, 0x0a, 1, b'r'],
    ];
    assert_eq!(request.encode_to_vec(), due.concat());
}

#[test]
fn a_watch_is_asked_for() {
    let create_request = WatchCreateRequest {
        key: b"a".to_vec(),
        range_end: b"bc".to_vec(),
        start_revision: 3,
        fragment: true,
    };
    let due = [&[0x0a, 11][..], &[0x0a, 1, b'a'], &[0x12, 2, b'b', b'c'], &[0x18, 3], &[0x40, 1]];
    assert_eq!(WatchRequest { create_request: Some(create_request) }.encode_to_vec(), due.concat());
}

#[test]
fn the_answer_to_a_watch_is_read() {
    let bytes = [
        // The cluster is 21, the member 22, the revision 23, and the term 24.
        &[0x0a, 8, 0x08, 21, 0x10, 22, 0x18, 23, 0x20, 24][..],
        // The watch is 25, and it was created: neither is read.
        &[0x10, 25, 0x18, 1],
        &[0x20, 1],
        &[0x28, 26],
        &[0x32, 2, b'n', b'o'],
        // It is a part: that is not read.
        &[0x38, 1],
        // A removal of the key k, and a put that says nothing.
        &[0x5a, 7, 0x08, 1, 0x12, 3, 0x0a, 1, b'k'],
        &[0x5a, 0],
    ];
    let due = WatchResponse {
        header: Some(ResponseHeader { cluster_id: 21, revision: 23 }),
        canceled: true,
        compact_revision: 26,
        cancel_reason: "no".to_owned(),
        events: vec![Event {}, Event {}],
    };
    assert_eq!(WatchResponse::decode(&bytes.concat()[..]), Ok(due));
}

#[test]
fn the_answer_to_a_transaction_is_read() {
    let bytes = [
        &[0x0a, 2, 0x18, 5][..],
        &[0x10, 1],
        // A range, which has a header, a record of the version 34, that there are more, and how many.
        &[0x1a, 28, 0x0a, 26, 0x0a, 2, 0x18, 6],
        &[0x12, 16, 0x0a, 1, b'k', 0x10, 32, 0x18, 33, 0x20, 34, 0x2a, 3, b'v', b'w', b'x', 0x30, 36],
        &[0x18, 1, 0x20, 7],
        // The answer to a put.
        &[0x1a, 6, 0x12, 4, 0x0a, 2, 0x18, 8],
    ];
    let record = KeyValue {
        key: b"k".to_vec(),
        create_revision: 32,
        mod_revision: 33,
        value: b"vwx".to_vec(),
        lease: 36,
    };
    let range = RangeResponse { header: header(6), kvs: vec![record], more: true };
    let responses = vec![ResponseOp { range: Some(range) }, ResponseOp { range: None }];
    let due = TxnResponse { header: header(5), succeeded: true, responses };
    assert_eq!(TxnResponse::decode(&bytes.concat()[..]), Ok(due));
}

#[test]
fn the_answer_to_a_grant_is_read() {
    // The time to live is 7: it is not read.
    let bytes = [&[0x0a, 2, 0x18, 5][..], &[0x10, 6], &[0x18, 7], &[0x22, 2, b'n', b'o']];
    let due = LeaseGrantResponse { header: header(5), id: 6, error: "no".to_owned() };
    assert_eq!(LeaseGrantResponse::decode(&bytes.concat()[..]), Ok(due));
}
