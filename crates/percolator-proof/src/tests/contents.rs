//! Receipts that keep contents, against the digest of a data set.

use percolator::receipt::{DataDigest, DigestDetail};
use percolator_files::checked_text::TextWriter;

use super::*;

/// The content hash of a record in these tests.
fn content(index: u64) -> u128 {
    let [low, high] = [1_u64, 2].map(|half| ReceiptBench::content(&half.to_le_bytes(), &index.to_le_bytes()));
    high << 64 | low & u128::from(u64::MAX)
}

/// The digest of a data set of this many records, parsed from its text.
fn data(records: u64, detail: DigestDetail) -> DataDigest {
    let sum = (0..records).fold(0, |sum: u128, index| sum.wrapping_add(content(index)));
    let mut text = TextWriter::new("digest", 1);
    text.fact("source", "made/up");
    text.fact("contents", format_args!("{sum:032x} of {records}"));
    if detail == DigestDetail::EachRecord {
        for first in (0..records).step_by(64) {
            let low = |index| format!("{:016x}", content(index) & u128::from(u64::MAX));
            text.fact("each", (first..records.min(first + 64)).map(low).collect::<String>());
        }
    }
    let text = text.checksum();
    let data: DataDigest = text.parse().unwrap();
    assert_eq!((data.to_string(), data.detail()), (text, detail));
    data
}

/// One receipt per worker, with contents; `holds` gives each record's content hash.
fn receipts_of_contents(
    plan: &Plan,
    given: &[Given],
    holds: impl Fn(RecordId, usize) -> u128,
) -> Vec<Receipt> {
    receipts_of(plan, given, |receipt, number, given| {
        receipt.fold_contents(given.end, &given.records, |record| holds(record, number));
    })
}

fn verdict_by(data: &DataDigest, receipts: &[Receipt]) -> Verdict {
    let names: Vec<String> = (0..receipts.len()).map(|number| format!("receipt {number}")).collect();
    Verdict::with_digest(("data", data), names.iter().map(String::as_str).zip(receipts)).unwrap()
}

proptest! {
    #[test]
    fn bytes_are_proven_wherever_a_run_stops_and_one_record_of_others_is_found(
        plan in plans(), epochs in 0_u64..3, stop: Index, which: Index, place: Index, bit in 0_u32..128,
    ) {
        let mut found = given(&plan, 0..epochs);
        let last = given(&plan, epochs..epochs + 1);
        let stop = if last.is_empty() { 0 } else { stop.index(last.len() + 1) };
        let stop = if last.get(stop).is_some_and(|given| given.end.is_last) { last.len() } else { stop };
        found.extend_from_slice(&last[..stop]);
        prop_assume!(found.iter().any(|given| !given.records.is_empty()));
        let records = plan.job().records();
        let [sum, each] = [DigestDetail::Sum, DigestDetail::EachRecord].map(|detail| data(records, detail));
        let right = receipts_of_contents(&plan, &found, |record, _| content(record.index));
        let (by_sum, by_each) = (verdict_by(&sum, &right), verdict_by(&each, &right));
        prop_assert!(by_each.is_sound(), "{by_each:?}");
        prop_assert!(by_each.epochs.iter().all(|epoch| epoch.contents == Some(ContentsVerdict::Proven)));
        for epoch in &by_sum.epochs {
            let is_whole = epoch.state == EpochState::Covered && epoch.dropped == 0;
            let due = if is_whole { ContentsVerdict::Proven } else { ContentsVerdict::NotKnown };
            prop_assert_eq!(epoch.contents.as_ref(), Some(&due));
        }
        let is_provable =
            by_sum.epochs.iter().all(|epoch| epoch.state != EpochState::Covered || epoch.dropped == 0);
        prop_assert_eq!(by_sum.is_sound(), is_provable);

        let full: Vec<usize> = (0..found.len()).filter(|&number| !found[number].records.is_empty()).collect();
        let number = full[which.index(full.len())];
        let changed = found[number].records[place.index(found[number].records.len())];
        let holds = |record: RecordId, at: usize| {
            let flip = if (record, at) == (changed, number) { 1 << bit } else { 0 };
            content(record.index) ^ flip
        };
        let wrong = receipts_of_contents(&plan, &found, holds);
        let whole = verdict_by(&sum, &wrong);
        for (before, epoch) in by_sum.epochs.iter().zip(&whole.epochs) {
            let is_of_changed =
                epoch.epoch == changed.epoch && before.contents == Some(ContentsVerdict::Proven);
            let differs = matches!(&epoch.contents, Some(ContentsVerdict::Differ(_)));
            prop_assert_eq!(differs, is_of_changed);
        }
        // For an incomplete epoch, the low halves alone are compared.
        let each = verdict_by(&each, &wrong);
        prop_assert_eq!(each.is_sound(), bit >= 64 && whole == by_sum);
        if bit < 64 {
            let epoch = each.epochs.iter().find(|epoch| epoch.epoch == changed.epoch).unwrap();
            let Some(ContentsVerdict::Differ(differ)) = &epoch.contents else { panic!("{epoch:?}") };
            let worker = found[number].replica / plan.world().replicas_per_worker();
            prop_assert_eq!(&differ[0].receipts, &[format!("receipt {worker}")]);
            prop_assert_eq!((differ.len(), differ[0].found.records()), (1, differ[0].due.records()));
        }
    }
}

#[test]
fn bytes_that_differ_are_told_with_both_sums() {
    let plan = plan(40, 8, 1);
    let other = |record: RecordId, _| content(record.index + u64::from(record.index == 39));
    let wrong = receipts_of_contents(&plan, &given(&plan, 0..1), other);
    let verdict = verdict_by(&data(40, DigestDetail::Sum), &wrong);
    assert!(!verdict.is_sound());
    let said = verdict.epochs[0].to_string();
    let found = wrong[0].epoch(0).unwrap().contents();
    let due = data(40, DigestDetail::Sum).contents();
    let told = format!("\n  receipt 0: bytes differ from the data set's: digest {found}, expected {due}");
    assert!(said.starts_with("epoch 0: covered: 40 records") && said.ends_with(&told), "{said}");
}

#[test]
fn receipts_without_all_contents_prove_none() {
    let plan = plan(40, 8, 2);
    let all = given(&plan, 0..1);
    let with = receipts_of_contents(&plan, &all, |record, _| content(record.index));
    let without = receipts(&plan, &all);
    let data = data(40, DigestDetail::EachRecord);
    let found = verdict_by(&data, &[with[0].clone(), without[1].clone()]);
    assert!(!found.is_sound());
    let receipts = vec!["receipt 1".to_owned()];
    assert_eq!(found.epochs[0].contents, Some(ContentsVerdict::NotSaid { receipts }));
    assert!(verdict(&[with[0].clone(), without[1].clone()]).is_sound(), "nobody asked");
}

#[test]
fn a_digest_of_another_length_is_refused() {
    let plan = plan(40, 8, 1);
    let receipt =
        receipts_of_contents(&plan, &given(&plan, 0..1), |record, _| content(record.index)).remove(0);
    let error = Verdict::with_digest(("d", &data(41, DigestDetail::Sum)), [("r", &receipt)]).unwrap_err();
    let said = "d has \"41 records\", and r has \"40 records\": they do not belong to the same data set";
    assert!(error.to_string().starts_with(said), "{error}");
}
