//! The JSON files beside the records, as Python's `json.dump` writes them.

use std::fmt::Write as _;

use super::{Flags, Preparation};

/// The vocabulary size that the script states, whatever the model's size is.
const VOCAB_SIZE: u32 = 32_000;

/// A field that the script does not have.
const MENDED: &str = ", \"fix_quirks\": true";

/// The content of a `record_info-*.json`: the records of a task's pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// The files of records, with the folder in which they were written.
    pub filenames: Vec<String>,
    /// How many batches they have together.
    pub num_batch: u64,
    /// Whether the script's quirks are fixed in them. The script's own files do not have this field.
    pub fix_quirks: bool,
    /// What the records were prepared from. The script does not state it, nor did earlier versions.
    pub preparation: Option<Preparation>,
}

impl RecordInfo {
    /// The file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let names: Vec<_> = self.filenames.iter().map(|name| quoted(name)).collect();
        let mended = if self.fix_quirks { MENDED } else { "" };
        let preparation = self.preparation.map(|of| format!(", \"preparation\": {}", of.to_json()));
        let preparation = preparation.unwrap_or_default();
        let names = names.join(", ");
        // What the script does not have comes last: without it, the text is the script's.
        format!("{{\"filenames\": [{names}], \"num_batch\": {}{mended}{preparation}}}", self.num_batch)
    }

    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let names = value.get("filenames").and_then(serde_json::Value::as_array);
        let names =
            names.and_then(|names| names.iter().map(|name| name.as_str().map(str::to_owned)).collect());
        let num_batch = value.get("num_batch").and_then(serde_json::Value::as_u64);
        let fix_quirks = value.get("fix_quirks").is_some_and(|value| *value == true);
        let preparation = value.get("preparation").map(|value| {
            Preparation::from_json(value).ok_or("preparation does not state what the records are of")
        });
        let preparation = preparation.transpose()?;
        match (names, num_batch) {
            (Some(filenames), Some(num_batch)) => {
                Ok(RecordInfo { filenames, num_batch, fix_quirks, preparation })
            }
            (None, _) => Err("filenames is not a list of texts".to_owned()),
            (_, None) => Err("num_batch is not a number of batches".to_owned()),
        }
    }
}

/// The text of `corpus_info.json`. If quirks are fixed, a field that the script does not have says so.
pub(super) fn corpus_info(flags: &Flags, mends_quirks: bool) -> String {
    let num_predict = flags.num_predict.map_or("null".to_owned(), |predict| predict.to_string());
    let mut text = format!(
        "{{\"vocab_size\": {VOCAB_SIZE}, \"bsz_per_host\": {}, \"num_core_per_host\": {}, \"seq_len\": {}, \
         \"reuse_len\": {}, \"uncased\": {}, \"bi_data\": {}, \"mask_alpha\": {}, \"mask_beta\": {}, \
         \"num_predict\": {num_predict}, \"use_eod\": {}, \"sp_path\": {}, \"input_glob\": {}",
        flags.bsz_per_host,
        flags.cores(),
        flags.seq_len,
        flags.reuse_len,
        flags.uncased,
        flags.bi_data,
        flags.mask_alpha,
        flags.mask_beta,
        flags.use_eod,
        quoted(&flags.sp_path.to_string_lossy()),
        quoted(&flags.input_glob.to_string_lossy()),
    );
    if mends_quirks {
        text.push_str(MENDED);
    }
    text.push('}');
    text
}

/// A JSON string, in ASCII alone.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for unit in serde_json::Value::from(text).to_string().encode_utf16() {
        match u8::try_from(unit) {
            Ok(plain @ b' '..=b'~') => quoted.push(char::from(plain)),
            // What JSON would leave as it is: Python writes the numbers of its halves.
            _ => _ = write!(quoted, "\\u{unit:04x}"),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_by_python() {
        // json.dumps of the same text.
        let text = "a\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}é\u{2028}🙂";
        let printed = "\"a\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u007f\\u00e9\\u2028\\ud83d\\ude42\"";
        assert_eq!(quoted(text), printed);
    }

    #[test]
    fn record_info_is_read_as_written() {
        let info = RecordInfo {
            filenames: vec!["a/é".to_owned(), "b".to_owned()],
            num_batch: 7,
            fix_quirks: false,
            preparation: None,
        };
        assert_eq!(info.to_json(), "{\"filenames\": [\"a/\\u00e9\", \"b\"], \"num_batch\": 7}");
        assert_eq!(RecordInfo::from_json(&info.to_json()), Ok(info.clone()));
        let mended = RecordInfo { fix_quirks: true, ..info };
        assert!(mended.to_json().ends_with("\"num_batch\": 7, \"fix_quirks\": true}"));
        assert_eq!(RecordInfo::from_json(&mended.to_json()), Ok(mended.clone()));
        let preparation = Preparation {
            num_task: 2,
            num_core_per_host: 1,
            use_eod: true,
            from_raw_text: false,
            model: 0x12,
            input: u64::MAX,
        };
        let ours = RecordInfo { preparation: Some(preparation), ..mended };
        let text = ours.to_json();
        assert!(
            text.ends_with(
                ", \"fix_quirks\": true, \"preparation\": {\"num_task\": 2, \"num_core_per_host\": 1, \
                 \"use_eod\": true, \"from_raw_text\": false, \"model\": \"0000000000000012\", \
                 \"input\": \"ffffffffffffffff\"}}"
            ),
            "{text}"
        );
        assert_eq!(RecordInfo::from_json(&text), Ok(ours));
        for wrong in ["", "[]", "{\"filenames\": [1], \"num_batch\": 1}", "{\"filenames\": [\"a\"]}"] {
            assert!(RecordInfo::from_json(wrong).is_err(), "{wrong}");
        }
        for (part, other) in [("2, ", "-2, "), ("false", "0"), ("12\"", "1g\""), ("ffff\"}", "+fff\"}")] {
            let wrong = text.replacen(part, other, 1);
            assert!(wrong != text && RecordInfo::from_json(&wrong).is_err(), "{wrong}");
        }
    }
}
