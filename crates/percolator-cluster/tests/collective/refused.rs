//! Names, ranks and records that are not what they must be.

use percolator_cluster::collective::GroupError;
use percolator_cluster::metadata::Transaction;
use percolator_distribute::Collective as _;

use super::*;

#[test]
fn ranks_and_names_that_cannot_be_are_refused() {
    let metadata = memory();
    for (rank, size) in [(0, 0), (2, 2), (0, 2049), (usize::MAX, usize::MAX)] {
        let error = group(&metadata).join(rank, size).unwrap_err();
        assert!(matches!(error, GroupError::NoSuchRank { .. }), "{error:?}");
        assert!(error.to_string().contains("a group has 1 to 2048 processes"), "{error}");
    }
    let error = Group::of(metadata.clone(), "a/b").join(0, 1).unwrap_err();
    assert!(matches!(error, GroupError::Name { .. }), "{error:?}");
    assert_eq!(keys(&metadata), [""; 0]);
}

#[test]
fn a_groups_record_that_is_damaged_or_of_another_version_is_named() {
    let refused = |value: &str, due: &str| {
        let metadata = memory();
        metadata.transact(&Transaction::new().put("/collective/digits/group", value)).unwrap();
        let error = group(&metadata).join(0, 2).unwrap_err().to_string();
        assert!(error.contains("/collective/digits/group") && error.contains(due), "{error}");
    };
    refused("", "EOF");
    refused("no JSON", "expected");
    refused(
        r#"{"version": 9, "generation": "s", "size": 2, "members": {}}"#,
        "its version is 9, and 1 is known",
    );
    refused(r#"{"version": 1, "generation": "s", "size": 2, "members": {}}"#, "no lease holds it");
    refused(r#"{"version": 1, "generation": "s", "size": -2, "members": {}}"#, "invalid value");
}

/// Two processes, and the record that rank 1 brings to a round replaced by another.
fn spoiled(end: &str, value: &[u8]) -> String {
    let metadata = memory();
    let mut ends = join_all(2, |_| group(&metadata));
    let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let words = vec![1; 1000];
    let mine = words.clone();
    // It stays until the first has read, or it would put its part anew.
    let second = std::thread::spawn(move || {
        let _ = second.all_gather(&mine);
        second
    });
    let of_second = format!("/00000000000000000001/{end}");
    until("the second has entered", || keys(&metadata).iter().any(|key| key.ends_with("01/000001")));
    let key = keys(&metadata).into_iter().find(|key| key.ends_with(&of_second)).unwrap();
    metadata.transact(&Transaction::new().put(&*key, value)).unwrap();
    let found = first.all_gather(&words).map(|words| words.len());
    let error = found.map_err(|error| error.to_string()).expect_err(&format!("{key}: {value:?}"));
    drop(first);
    let _ = second.join().unwrap();
    error
}

#[test]
fn records_of_a_round_that_are_damaged_end_it() {
    let cases: [(&str, &[u8], &str); 6] = [
        ("000001", b"{", "EOF"),
        ("000001", br#"{"words": 99999999999}"#, "states 99999999999 words"),
        ("000001", br#"{"words": 1000, "inline": [1]}"#, "1000 words, of which 1 are in it"),
        ("000001/000000", &[0; 7], "7 bytes, which are no 64-bit words"),
        ("000001/000000", &[0; 8], "has 1 words in 1 parts, and states 1000"),
        ("000001/000000", &[0; 8008], "has 1001 words in 1 parts, and states 1000"),
    ];
    for (end, value, due) in cases {
        let error = spoiled(end, value);
        assert!(error.contains(due), "{error}");
    }
}
