//! Texts of receipts and digests, and a digest that is made in parts.

use super::*;
use crate::order::{BatchSize, Job, World};
use crate::record::{RecordId, StepEnd};
use crate::source::{Entry, Run};
use percolator_files::checked_text::TextWriter;

/// Receipts of earlier releases have neither samples nor contents.
#[test]
fn receipts_of_the_first_version_are_read() {
    let plan = Job::new([40], BatchSize::Global(40), World::ALONE).plan().unwrap();
    let mut ledger = Ledger::of(0);
    let records: Vec<_> = (0..40).map(|index| RecordId { epoch: 0, index }).collect();
    ledger.fold(Some(StepEnd { epoch: 0, step: 0, is_last: true }), &records, &[], &[]);
    let mut receipt = Receipt::new("made/up", &Identity::new(), &plan);
    receipt.add(&ledger);
    let text = resealed(&receipt.to_string().replace("receipt 2\n", "receipt 1\n"));
    assert_eq!(text.parse::<Receipt>().unwrap(), receipt);
}

/// A text with the checksum that it has to have.
fn resealed(text: &str) -> String {
    let body = &text[..text.rfind("checksum").unwrap()];
    format!("{body}checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

/// The digest of some made-up records, given in parts of these lengths.
fn digest(parts: &[u64], detail: DigestDetail) -> DataDigest {
    let (mut digest, mut first) = (DataDigest::of_run("made/up".as_ref(), detail, &Run::with_capacity(0)), 0);
    for &records in parts {
        let mut run = Run::with_capacity(8);
        for index in first..first + records {
            let (key, value) = (format!("{index:08}"), index.to_string().repeat(3));
            run.push(RecordId { epoch: 0, index }, Entry::borrowed(key.as_bytes(), value.as_bytes()));
        }
        first += records;
        digest.append(DataDigest::of_run("made/up".as_ref(), detail, &run));
    }
    digest
}

#[test]
fn a_digest_of_parts_is_that_of_the_whole() {
    for detail in [DigestDetail::Sum, DigestDetail::EachRecord] {
        let whole = digest(&[100], detail);
        assert_eq!((whole.detail(), whole.contents().records()), (detail, 100));
        assert_eq!(whole.to_string().parse(), Ok(whole.clone()));
        for parts in [&[1, 99][..], &[50, 0, 50, 0], &[0, 99, 1], &[1; 100]] {
            assert_eq!(digest(parts, detail), whole, "{parts:?}");
        }
        assert_eq!(digest(&[1], detail).samples().of_records(), digest(&[0, 1, 0], detail).samples());
    }
    let (sum, each) = (digest(&[100], DigestDetail::Sum), digest(&[100], DigestDetail::EachRecord));
    assert_eq!(each.sum(), sum);
    let of_all = (0..100).map(|position| each.of_record(position).unwrap());
    assert_eq!(of_all.fold(Digest::default(), |sum, one| sum + one).low_half(), sum.contents().low_half());
    assert_eq!((each.of_record(100), sum.of_record(0)), (None, None));
}

#[test]
fn a_digest_that_contradicts_itself_is_refused() {
    let text = digest(&[40], DigestDetail::EachRecord).to_string();
    for (from, to, due) in [
        (" of 40\n", " of 39\n", "hashes of 39 records"),
        ("each ", "each 0", "16 hexadecimal digits"),
        ("each ", "each +", "16 hexadecimal digits"),
        (" of 40\n", " of many\n", "a sum and how many"),
        ("source ", "sauce ", "\"source ...\""),
    ] {
        let error = resealed(&text.replacen(from, to, 1)).parse::<DataDigest>().unwrap_err();
        assert!(error.to_string().contains(due), "{error}");
    }
}

/// A feed that is given the digest adds its contents to the clues of its receipt, which has each name once.
#[test]
fn a_digest_with_a_clue_of_its_contents_is_refused() {
    let mut text = TextWriter::new("digest", 1);
    text.fact("source", "made/up");
    text.fact("clue", "contents 01 of 1");
    text.fact("contents", format_args!("{:032x} of 0", 0));
    let error = text.checksum().parse::<DataDigest>().unwrap_err().to_string();
    let said = r#"line 3: found "contents 01 of 1", expected "clue ..." with a name that is not taken"#;
    assert_eq!(error, said);
}
