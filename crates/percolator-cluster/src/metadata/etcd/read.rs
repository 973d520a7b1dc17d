//! Many records, page by page, all of one revision.

use std::sync::Arc;

use tonic::Code;

use super::messages::Range;
use crate::etcd::rpc::{KeyValue, RangeRequest};
use crate::etcd::{Calls, Failure, Repeat};

/// The records of the first page: as many as fit into an answer if each is as large as a record may be.
const PAGE_FIRST: usize = 32;
/// The most records of a page.
const PAGE_MAX: usize = 4096;
/// Pages grow while they have fewer bytes.
const PAGE_BYTES: usize = 1 << 20;
/// How often reading starts over because the revision that is read is not there any more.
const STARTS_MAX: usize = 3;

/// Reads a range. Returns the revision, and what was there then, in the order of the keys.
pub(super) async fn pages(calls: Arc<Calls>, range: Range) -> Result<(i64, Vec<KeyValue>), Failure> {
    let mut starts = 1;
    loop {
        match pages_once(&calls, &range).await {
            Err(Failure::Answer { code: Code::OutOfRange, message })
                if is_of_revision(&message) && starts < STARTS_MAX =>
            {
                starts += 1;
            }
            result => return result,
        }
    }
}

/// Whether an answer that something is out of range means the revision: it has been compacted away, or is one
/// of the future, since the metadata were set back to a copy. Otherwise the answer is too large to be taken.
fn is_of_revision(message: &str) -> bool {
    message.contains("required revision")
}

async fn pages_once(calls: &Calls, range: &Range) -> Result<(i64, Vec<KeyValue>), Failure> {
    let mut found: Vec<KeyValue> = Vec::new();
    let Range { mut key, range_end } = range.clone();
    // 0 is now, which the first page decides.
    let mut revision = 0;
    let mut limit = PAGE_FIRST;
    loop {
        let request = RangeRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision,
            ..RangeRequest::default()
        };
        let page = match calls.ask(Repeat::Allowed, &request).await {
            // It is too large to be taken.
            Err(Failure::Answer { code: Code::OutOfRange, message })
                if !is_of_revision(&message) && limit > 1 =>
            {
                limit = (limit / 8).max(1);
                continue;
            }
            page => page?,
        };
        if revision == 0 {
            let stated = page.header.map(|header| header.revision).filter(|&revision| revision > 0);
            revision = stated.ok_or_else(|| Failure::Foreign {
                message: "it answers without saying at which revision".to_owned(),
            })?;
        }
        let bytes: usize = page.kvs.iter().map(|found| found.key.len() + found.value.len()).sum();
        if bytes < PAGE_BYTES {
            limit = (limit * 4).min(PAGE_MAX);
        }
        let last = page.kvs.last().map(|found| found.key.clone());
        found.extend(page.kvs);
        match last {
            _ if !page.more => return Ok((revision, found)),
            // The next key that there can be.
            Some(last) if last >= key => key = [&last[..], &[0]].concat(),
            _ => {
                let message = "it says that there are more records, and gives none".to_owned();
                return Err(Failure::Foreign { message });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What etcd and tonic say, word for word.
    #[test]
    fn a_revision_that_is_not_there_is_no_answer_that_is_too_large() {
        assert!(is_of_revision("etcdserver: mvcc: required revision has been compacted"));
        assert!(is_of_revision("etcdserver: mvcc: required revision is a future revision"));
        let limit = "Error, decoded message length too large: \
                     found 5242880 bytes, the limit is: 4194304 bytes";
        assert!(!is_of_revision(limit));
    }
}
