//! What records were prepared from: it is written into each `record_info`, and compared before records are
//! read together.

use std::path::Path;

use serde_json::Value;

use super::Flags;

/// What divides the text among the files of records, and what cuts it. All records of one data set agree in
/// it: otherwise, text would come twice, or be missing.
///
/// The names of the files state other flags. Seeds are not compared: each pass may have its own, as in the
/// script, and has all the text whatever its seed is. Nor are folders, so tasks may be prepared on machines
/// that have the text in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// The number of tasks among which the files were divided.
    pub num_task: u32,
    /// The cores that share a batch. It decides which rows run backwards.
    pub num_core_per_host: u32,
    /// Whether a token marks the end of a document.
    pub use_eod: bool,
    /// Whether the files were text, or token numbers.
    pub from_raw_text: bool,
    /// A hash of the model.
    pub model: u64,
    /// A hash of the names and lengths of all tasks' files, in their order.
    pub input: u64,
}

impl Preparation {
    /// `files` are those of all tasks, each with its length in bytes.
    pub(super) fn of<'a>(
        flags: &Flags,
        model: u64,
        files: impl IntoIterator<Item = (&'a Path, u64)>,
    ) -> Self {
        let mut input = Hash::new();
        for (path, length) in files {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            input.add(&(name.len() as u64).to_le_bytes());
            input.add(name);
            input.add(&length.to_le_bytes());
        }
        Preparation {
            num_task: flags.num_task,
            num_core_per_host: flags.cores(),
            use_eod: flags.use_eod,
            from_raw_text: flags.from_raw_text,
            model,
            input: input.0,
        }
    }

    /// What another task's `record_info` differs in; `None` if its records can be read with these.
    ///
    /// The script and earlier versions state nothing of this. Then only the task's number can tell.
    pub(super) fn differences(&self, task: u32, other: Option<&Preparation>) -> Option<String> {
        let Some(other) = other else {
            let num_task = self.num_task;
            return (task >= num_task).then(|| format!("it is of task {task}, and num_task is {num_task}"));
        };
        let not = |name: &str, found: &dyn ToString, due: &dyn ToString| {
            let (found, due) = (found.to_string(), due.to_string());
            (found != due).then(|| format!("its {name} is {found} and not {due}"))
        };
        let differences: Vec<String> = [
            not("num_task", &other.num_task, &self.num_task),
            not("num_core_per_host", &other.num_core_per_host, &self.num_core_per_host),
            not("use_eod", &other.use_eod, &self.use_eod),
            not("from_raw_text", &other.from_raw_text, &self.from_raw_text),
            (other.model != self.model).then(|| "its model is another".to_owned()),
            (other.input != self.input).then(|| "its input files have other names or lengths".to_owned()),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!differences.is_empty()).then(|| differences.join(", "))
    }

    pub(super) fn to_json(self) -> String {
        format!(
            "{{\"num_task\": {}, \"num_core_per_host\": {}, \"use_eod\": {}, \"from_raw_text\": {}, \
             \"model\": \"{:016x}\", \"input\": \"{:016x}\"}}",
            self.num_task, self.num_core_per_host, self.use_eod, self.from_raw_text, self.model, self.input
        )
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| u32::try_from(value.get(name)?.as_u64()?).ok();
        let is = |name: &str| value.get(name)?.as_bool();
        let hash = |name: &str| {
            let digits = value.get(name)?.as_str()?;
            let is_hash = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hash.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        Some(Preparation {
            num_task: number("num_task")?,
            num_core_per_host: number("num_core_per_host")?,
            use_eod: is("use_eod")?,
            from_raw_text: is("from_raw_text")?,
            model: hash("model")?,
            input: hash("input")?,
        })
    }
}

/// FNV-1a, of 64 bits. It is the same on all machines and in all versions. It finds mistakes; it does not
/// protect against an attacker who searches for a collision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(pub(super) u64);

impl Hash {
    pub(super) fn new() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(super) fn of(bytes: &[u8]) -> u64 {
        let mut hash = Hash::new();
        hash.add(bytes);
        hash.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(change: impl FnOnce(&mut Flags), model: u64, files: &[(&str, u64)]) -> Preparation {
        let mut flags = Flags { num_task: 3, ..Flags::default() };
        change(&mut flags);
        Preparation::of(&flags, model, files.iter().map(|(path, length)| (Path::new(path), *length)))
    }

    /// The values are those of the authors' specification.
    #[test]
    fn hashes_are_pinned() {
        for (text, due) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(Hash::of(text.as_bytes()), due, "{text}");
        }
        let fixed = of(|_| {}, 1, &[("text/a", 7), ("text/b", 0)]);
        assert_eq!(
            fixed.input,
            Hash::of(b"\x01\0\0\0\0\0\0\0a\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0b\0\0\0\0\0\0\0\0")
        );
    }

    #[test]
    fn what_decides_the_content_differs_and_nothing_else_does() {
        let files = &[("text/a", 7), ("text/b", 8)][..];
        let one = of(|_| {}, 1, files);
        type Change = fn(&mut Flags);
        let same: [Change; 4] = [
            |flags| flags.task = 2,
            |flags| flags.pass_id = 2,
            |flags| flags.save_dir = "elsewhere".into(),
            // Without a TPU, there is one core, however many there are said to be.
            |flags| (flags.use_tpu, flags.num_core_per_host) = (true, 8),
        ];
        for change in same {
            assert_eq!(one.differences(0, Some(&of(change, 1, files))), None);
        }
        assert_eq!(one, of(|_| {}, 1, &[("/mnt/text/a", 7), ("/mnt/text/b", 8)]));
        let other: [(Preparation, &str); 8] = [
            (of(|flags| flags.num_task = 2, 1, files), "its num_task is 2 and not 3"),
            (of(|flags| flags.use_tpu = false, 1, files), "its num_core_per_host is 1 and not 8"),
            (of(|flags| flags.use_eod = false, 1, files), "its use_eod is false and not true"),
            (of(|flags| flags.from_raw_text = false, 1, files), "its from_raw_text is false and not true"),
            (of(|_| {}, 2, files), "its model is another"),
            (of(|_| {}, 1, &files[..1]), "its input files have other names or lengths"),
            (of(|_| {}, 1, &[("text/a", 7), ("text/c", 8)]), "its input files have other names or lengths"),
            (of(|_| {}, 1, &[("text/a", 8), ("text/b", 8)]), "its input files have other names or lengths"),
        ];
        for (other, due) in other {
            assert_eq!(one.differences(0, Some(&other)).as_deref(), Some(due));
            assert_eq!(Preparation::from_json(&serde_json::from_str(&other.to_json()).unwrap()), Some(other));
        }
        let several = of(|flags| (flags.num_task, flags.use_eod) = (2, false), 1, files);
        let due = "its num_task is 2 and not 3, its use_eod is false and not true";
        assert_eq!(one.differences(0, Some(&several)).as_deref(), Some(due));
        // Nothing is known of the other.
        assert_eq!(one.differences(2, None), None);
        assert_eq!(one.differences(3, None).as_deref(), Some("it is of task 3, and num_task is 3"));
    }
}
