//! The files that processes of an id have begun, or may begin, and that its record does not name. Other files
//! in the store belong to other metadata, or to a record that was lost.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::metadata::{Record, Revision, Transaction};

/// The fewest free names: in an outage one file waits for an answer, one waits to be put, and one
/// is being written.
const FREE_MIN: usize = 3;

/// The most names. There are that many only if a store refuses for a long time to remove
/// files, or to complete them: then the oldest names are dropped, and existing files with these names stay.
const NAMES_MAX: usize = 1024;

/// The most names of earlier processes that are kept, the newest ones. Each of them that was killed adds a
/// few.
const EARLIER_MAX: usize = 128;

/// Names of files. They are in the metadata before the files are begun.
#[derive(Clone, Debug, Default)]
pub(super) struct Announced {
    /// All of them, the oldest first.
    names: Vec<Uuid>,
    /// Those that this process may give to files, the ones that no file has had last.
    free: Vec<Uuid>,
    /// The revision of the names that were read or put last, unless a put was not answered since.
    seen: Option<Revision>,
}

impl Announced {
    /// Takes the names out of their record. Lines that are no names announce nothing.
    pub(super) fn parse(record: Option<&Record>) -> Self {
        let text = record.map(|record| String::from_utf8_lossy(&record.value));
        let lines = text.iter().flat_map(|text| text.lines());
        let mut names: Vec<_> = lines.filter_map(|line| Uuid::try_parse(line).ok()).collect();
        names.drain(..names.len().saturating_sub(EARLIER_MAX));
        Announced { names, free: Vec::new(), seen: record.map(|record| record.modified) }
    }

    pub(super) fn names(&self) -> &[Uuid] {
        &self.names
    }

    /// The names, a line each.
    pub(super) fn text(&self) -> String {
        self.names.iter().map(|name| format!("{name}\n")).collect()
    }

    /// Returns a name for a file.
    pub(super) fn take(&mut self) -> Option<Uuid> {
        self.free.pop()
    }

    /// The file of this name is gone, and no put of it was sent: another one may have the name.
    pub(super) fn give_back(&mut self, name: Uuid) {
        self.free.insert(0, name);
    }

    /// The same with enough free names.
    pub(super) fn topped_up(mut self) -> Self {
        while self.free.len() < FREE_MIN {
            let name = Uuid::new_v4();
            self.names.push(name);
            self.free.push(name);
        }
        let mut surplus = self.names.len().saturating_sub(NAMES_MAX);
        self.names.retain(|name| {
            let is_given_up = surplus > 0 && !self.free.contains(name);
            surplus -= usize::from(is_given_up);
            !is_given_up
        });
        self
    }

    /// The same with free names that no file has had.
    pub(super) fn renewed(mut self) -> Self {
        // They stay among the names: if this is put but the answer is lost, files may be begun with them.
        self.free.clear();
        self.topped_up()
    }

    /// The record that named the files `before` names `now`.
    pub(super) fn follow(&mut self, before: &BTreeSet<Uuid>, now: &BTreeSet<Uuid>) {
        self.names.retain(|name| !now.contains(name));
        self.names.extend(before.difference(now));
    }

    /// The file of this name is gone, and there will be no other one.
    pub(super) fn forget(&mut self, name: Uuid) {
        self.names.retain(|&other| other != name);
    }

    /// The names were put.
    pub(super) fn put_at(self, revision: Revision) -> Self {
        Announced { seen: Some(revision), ..self }
    }

    /// Asks for the names to be those that were seen.
    pub(super) fn when_unchanged(&self, transaction: Transaction, key: &str) -> Transaction {
        transaction.when_seen(key, self.seen)
    }

    /// Other names were put than were seen: by this process, which did not hear of it, or by one that held
    /// the id for a while.
    pub(super) fn adopt(&mut self, record: Option<&Record>) {
        let found = Announced::parse(record);
        self.free.retain(|name| found.names.contains(name));
        self.names.retain(|name| !found.names.contains(name));
        self.names.extend(found.names);
        self.seen = found.seen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{MemoryMetadata, Metadata as _, Outcome};

    const KEY: &str = "/checkpoints-begun/shard";

    fn stored(metadata: &MemoryMetadata) -> Announced {
        Announced::parse(metadata.read(KEY).unwrap().records.first())
    }

    fn announce(metadata: &MemoryMetadata, announced: &mut Announced) -> bool {
        let next = announced.clone().topped_up();
        let put = next.when_unchanged(Transaction::new(), KEY).put(KEY, next.text());
        match metadata.transact(&put).unwrap() {
            Outcome::Committed(revision) => {
                *announced = next.put_at(revision);
                true
            }
            Outcome::Refused(_) => false,
        }
    }

    #[test]
    fn a_name_is_announced_before_it_is_given() {
        let metadata = MemoryMetadata::default();
        let mut announced = stored(&metadata);
        assert_eq!(announced.take(), None);
        assert!(announce(&metadata, &mut announced));
        let given: Vec<_> = std::iter::from_fn(|| announced.take()).collect();
        assert_eq!(given.len(), FREE_MIN);
        assert!(given.iter().all(|name| stored(&metadata).names().contains(name)));
        announced.give_back(given[1]);
        assert_eq!((announced.take(), announced.take()), (Some(given[1]), None));
        // One that no file has had comes first.
        announced.give_back(given[1]);
        assert!(announce(&metadata, &mut announced));
        assert!(![given[1], given[2]].contains(&announced.take().unwrap()));
        assert!(announce(&metadata, &mut announced));
        let renewed = announced.clone().renewed();
        assert_eq!(renewed.names.len(), announced.names.len() + FREE_MIN);
        assert!(renewed.free.iter().all(|name| !announced.names.contains(name)));
    }

    #[test]
    fn there_are_only_so_many_names() {
        let mut announced = Announced::default().topped_up();
        let first = announced.take().unwrap();
        announced.give_back(first);
        for _ in 0..3 * NAMES_MAX {
            announced = announced.topped_up();
            while announced.free.len() > 1 {
                announced.take();
            }
        }
        let announced = announced.topped_up();
        assert_eq!(announced.names.len(), NAMES_MAX);
        assert!(announced.free.iter().all(|name| announced.names.contains(name)));
        assert!(announced.free.contains(&first), "one that is free is not given up");
    }

    #[test]
    fn names_that_were_not_seen_are_not_replaced() {
        let metadata = MemoryMetadata::default();
        let [mut first, mut second] = [(); 2].map(|()| stored(&metadata));
        assert!(announce(&metadata, &mut first));
        assert!(!announce(&metadata, &mut second));
        second.adopt(metadata.read(KEY).unwrap().records.first());
        assert!(announce(&metadata, &mut second));
        let stored = stored(&metadata);
        assert!(first.names().iter().chain(second.names()).all(|name| stored.names().contains(name)));
    }

    #[test]
    fn what_a_record_names_is_not_among_them() {
        let mut announced = Announced::default().topped_up();
        let [first, second] = [(); 2].map(|()| announced.take().unwrap());
        let [none, one, other] = [vec![], vec![first], vec![second]].map(BTreeSet::from_iter);
        announced.follow(&none, &one);
        assert!(!announced.names().contains(&first) && announced.names().contains(&second));
        announced.follow(&one, &other);
        assert!(announced.names().contains(&first) && !announced.names().contains(&second));
        announced.forget(first);
        assert!(!announced.names().contains(&first));
    }

    #[test]
    fn the_newest_names_of_earlier_processes_are_kept() {
        let metadata = MemoryMetadata::default();
        let names: Vec<_> = std::iter::repeat_with(Uuid::new_v4).take(EARLIER_MAX + 3).collect();
        let text: String = names.iter().map(|name| format!("{name}\nno name\n\u{fffd}\n")).collect();
        metadata.transact(&Transaction::new().put(KEY, text)).unwrap();
        assert_eq!(stored(&metadata).names(), &names[3..]);
    }
}
