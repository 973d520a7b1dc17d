//! Records and transactions as etcd's messages.

use std::collections::BTreeSet;

use crate::etcd::rpc::{
    Compare, CompareResult, CompareTarget, Compared, DeleteRangeRequest, KeyValue, Operation, PutRequest,
    RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use crate::metadata::records::{LeaseId, Record, Revision};
use crate::metadata::transaction::{Change, Condition, Transaction};

/// No lease has this number. etcd takes 0 for none.
const NO_SUCH_LEASE: i64 = i64::MIN;

/// What is before each key.
#[derive(Clone, Debug)]
pub(super) struct Prefix(Vec<u8>);

/// Keys from one on, up to but not including another; `[0]` for no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) key: Vec<u8>,
    pub(super) range_end: Vec<u8>,
}

impl Prefix {
    pub(super) fn new(prefix: &str) -> Self {
        Prefix(prefix.as_bytes().to_owned())
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [&self.0[..], key.as_bytes()].concat()
    }

    /// The keys that begin with this.
    pub(super) fn range(&self, prefix: &str) -> Range {
        let key = self.key(prefix);
        if key.is_empty() {
            return Range { key: vec![0], range_end: vec![0] };
        }
        let mut range_end = key.clone();
        // No byte of UTF-8 is 255.
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        Range { key, range_end }
    }

    /// A record that was found. The error says what is wrong with it.
    pub(super) fn record(&self, found: KeyValue) -> Result<Record, String> {
        let KeyValue { key, value, create_revision, mod_revision, lease } = found;
        let shown = || key.escape_ascii().to_string();
        let key = match key.strip_prefix(&self.0[..]).map(str::from_utf8) {
            Some(Ok(key)) => key.to_owned(),
            Some(Err(_)) => {
                return Err(format!("the key {} is not UTF-8: it is none of this library's", shown()));
            }
            None => return Err(format!("it answers with the key {}, which was not asked for", shown())),
        };
        let (created, modified) = (Revision(create_revision), Revision(mod_revision));
        Ok(Record { key, value, created, modified, lease: (lease != 0).then_some(LeaseId(lease)) })
    }

    /// If the conditions hold, the changes; if not, the records of the conditions' keys.
    pub(super) fn transaction(&self, transaction: &Transaction) -> TxnRequest {
        let compare = transaction.conditions().iter().map(|condition| self.compare(condition)).collect();
        let mut success: Vec<_> = transaction.changes().iter().map(|change| self.change(change)).collect();
        let keys: BTreeSet<_> = transaction.conditions().iter().map(Condition::key).collect();
        if success.is_empty() {
            // A transaction that asks for nothing need not be answered by the newest state.
            let key = keys.first().map_or_else(|| self.key("\0"), |key| self.key(key));
            success.push(look_up(RangeRequest { key, count_only: true, ..RangeRequest::default() }));
        }
        let key = |key| RangeRequest { key: self.key(key), ..RangeRequest::default() };
        let failure = keys.into_iter().map(|found| look_up(key(found))).collect();
        TxnRequest { compare, success, failure }
    }

    fn compare(&self, condition: &Condition) -> Compare {
        // Of a key that is not there, each number is 0.
        let (result, target, union) = match condition {
            Condition::Missing(_) => {
                (CompareResult::Equal, CompareTarget::Create, Compared::CreateRevision(0))
            }
            // No record was put then, or is held by that: this never holds.
            Condition::Modified(_, Revision(..=0)) | Condition::HeldBy(_, LeaseId(0)) => {
                (CompareResult::Less, CompareTarget::Create, Compared::CreateRevision(0))
            }
            Condition::Modified(_, revision) => {
                (CompareResult::Equal, CompareTarget::Mod, Compared::ModRevision(revision.0))
            }
            Condition::HeldBy(_, lease) => {
                (CompareResult::Equal, CompareTarget::Lease, Compared::Lease(lease.0))
            }
        };
        let key = self.key(condition.key());
        Compare { result: result.into(), target: target.into(), key, target_union: Some(union) }
    }

    fn change(&self, change: &Change) -> RequestOp {
        let request = match change {
            Change::Put { key, value, lease } => {
                let lease = match lease {
                    None => 0,
                    Some(LeaseId(0)) => NO_SUCH_LEASE,
                    Some(LeaseId(lease)) => *lease,
                };
                Operation::Put(PutRequest { key: self.key(key), value: value.clone(), lease })
            }
            Change::Remove { key } => Operation::DeleteRange(DeleteRangeRequest { key: self.key(key) }),
        };
        RequestOp { request: Some(request) }
    }

    /// The records that a transaction which was refused has found.
    pub(super) fn refused(&self, answer: TxnResponse) -> Result<Vec<Record>, String> {
        let found = answer.responses.into_iter().map(|response| match response.range {
            Some(range) => Ok(range.kvs),
            None => Err("it answers a transaction with what was not asked for".to_owned()),
        });
        let found = found.collect::<Result<Vec<_>, _>>()?;
        // The keys were asked for in their order.
        found.into_iter().flatten().map(|found| self.record(found)).collect()
    }
}

fn look_up(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Operation::Range(range)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_keys_that_begin_with_its_prefix() {
        let range = |prefix: &str, begin| Prefix::new(prefix).range(begin);
        let due = |key: &[u8], end: &[u8]| Range { key: key.to_owned(), range_end: end.to_owned() };
        assert_eq!(range("", ""), due(&[0], &[0]));
        assert_eq!(range("/a/", ""), due(b"/a/", b"/a0"));
        assert_eq!(range("/a", "/b"), due(b"/a/b", b"/a/c"));
        assert_eq!(range("", "\u{10ffff}"), due(&[0xf4, 0x8f, 0xbf, 0xbf], &[0xf4, 0x8f, 0xbf, 0xc0]));
    }

    #[test]
    fn what_is_not_a_record_is_refused() {
        let prefix = Prefix::new("/a/");
        let record = |key: &[u8]| prefix.record(KeyValue { key: key.to_owned(), ..KeyValue::default() });
        assert_eq!(record(b"/a/b").unwrap().key, "b");
        assert!(record(b"/a/\xff").unwrap_err().contains("the key /a/\\xff is not UTF-8"));
        assert!(record(b"/b/c").unwrap_err().contains("not asked for"));
    }

    #[test]
    fn what_cannot_hold_is_not_what_a_missing_key_has() {
        let compare = |condition| Prefix::new("").compare(&condition);
        for condition in [
            Condition::Modified("a".to_owned(), Revision(0)),
            Condition::Modified("a".to_owned(), Revision(-1)),
            Condition::HeldBy("a".to_owned(), LeaseId(0)),
        ] {
            let never = compare(condition);
            assert_eq!((never.result(), never.target()), (CompareResult::Less, CompareTarget::Create));
            assert_eq!(never.target_union, Some(Compared::CreateRevision(0)));
        }
        assert_eq!(compare(Condition::HeldBy("a".to_owned(), LeaseId(7))).target(), CompareTarget::Lease);
    }
}
