//! The words of the library's messages, in Python: keywords in place of a builder's methods.

/// What the library says, and what that is here. What contains another comes before it.
const WORDS: [(&str, &str); 18] = [
    (".lmdb(path), .leveldb(path), or .source(...)", "lmdb=, leveldb=, tfrecord= or image_list="),
    (".lmdb(path), --lmdb", "lmdb=PATH"),
    (".leveldb(path), --leveldb", "leveldb=PATH"),
    ("lmdb_named, or LmdbOptions::name", "lmdb_name=NAME"),
    ("; attach a device of your own with .devices(...)", ""),
    ("both .decoder(...) and .fields(...) or .decode(...) are set", "both decode and fields are set"),
    (".fields([...]) and .decode(...), or .decoder(...)", "decode and decode_fields"),
    (".decoder(...)", "decode=FUNCTION"),
    ("BadRecords::skip, BadRecords::replace", "bad_records=\"skip\" or \"replace\""),
    ("Feed::layers_of", "layer=NAME"),
    ("Feed::take_lanes", "feed.take_lanes()"),
    ("Snapshot::join", "Snapshot.join"),
    ("worker(World::new(...), number) in place of ranks", "rank and world_size"),
    (".epochs(0).assignment(Assignment::Caffe)", "epochs=0, assignment=\"caffe\""),
    (".epochs(0).shuffle(Shuffle::Global)", "epochs=0, shuffle=True"),
    ("Shuffle::Global", "True"),
    (".transform_on(TransformPlace::Host)", "transform_on=\"host\""),
    ("TransformPlace::Host", "transform_on=\"host\""),
];

/// Keywords whose methods may be named in any other way.
const KEYWORDS: [&str; 14] = [
    "lmdb",
    "leveldb",
    "tfrecord",
    "devices",
    "epochs",
    "once",
    "shuffle",
    "seed",
    "receipts",
    "mix",
    "index",
    "prefetch",
    "at_most_rate",
    "fields",
];

/// A message of the library in Python's words.
pub(crate) fn in_python(message: &str) -> String {
    let mut text = message.to_owned();
    for (said, word) in WORDS {
        if text.contains(said) {
            text = text.replace(said, word);
        }
    }
    for keyword in KEYWORDS {
        text = as_keyword(text, keyword);
    }
    text
}

/// Makes `keyword=value` of each `.keyword(value)`, and `keyword` of `.keyword`.
fn as_keyword(text: String, keyword: &str) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut made = String::new();
    let mut rest = &text[..];
    while let Some(at) = rest.find(keyword) {
        let (before, after) = (&rest[..at], &rest[at + keyword.len()..]);
        let left = before.strip_suffix('.').unwrap_or(before);
        let is_call = left.is_empty() || left.ends_with([' ', '(']);
        let value = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        rest = after;
        match value.filter(|(value, _)| is_call && !value.contains('(')) {
            Some((value, after)) => {
                made.extend([left, keyword, "=", if value.is_empty() { "True" } else { value }]);
                rest = after;
            }
            None if is_call && !after.starts_with(is_word) => made.extend([left, keyword]),
            None => made.extend([before, keyword]),
        }
    }
    made + rest
}
