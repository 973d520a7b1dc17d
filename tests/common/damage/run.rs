//! Damages a data set, in a process of its own: so a signal, an abort and a hang are noticed, and the last
//! case is known.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::case::{Case, Material};
use super::change::{Change, Changes};
use super::process::{check as check_child, child_command, role, sample};
use super::stated::Guard;
use super::verdict::{Verdict, judge};
use super::{Format, Reading, Way, allocator, watch};

/// How many changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    All,
    /// Of the parts and files so many, and of the bytes.
    Some(usize),
}

impl Amount {
    /// As `PERCOLATOR_DAMAGED_FILES` says; by default, as many as are worth their time in CI, or a sample.
    fn wanted(default: usize) -> Self {
        match std::env::var("PERCOLATOR_DAMAGED_FILES").as_deref() {
            Err(_) => Amount::Some(sample::times(default, default.div_ceil(5))),
            Ok("all") => Amount::All,
            Ok(count) => Amount::Some(count.parse().expect("a number of files, or all")),
        }
    }

    /// These many of `total`, spread evenly.
    fn of(self, total: usize) -> impl Iterator<Item = usize> {
        let count = match self {
            Amount::Some(count) if count < total => count,
            _ => total,
        };
        // Each is one further than evenly spread ones are: so they are of all kinds, which come in turn.
        let turn = usize::from(count < total);
        (0..count).map(move |number| (number * total / count + turn * number) % total)
    }
}

/// Damages a data set and checks each reading. `test` is the test that calls this: it runs again in a process
/// of its own. `count` is how many changes of its parts, and as many of its bytes, are made in CI.
pub fn check<F: Format>(test: &str, count: usize, make: impl FnOnce() -> F) {
    let Some(home) = role() else {
        let home = tempfile::tempdir().unwrap();
        let mut child = child_command(test, home.path().to_str().unwrap());
        child.env("XDG_CACHE_HOME", home.path().join("cache"));
        let output = child.output().unwrap();
        if !output.status.success() {
            println!("at last: {}", fs::read_to_string(home.path().join("log")).unwrap_or_default());
        }
        return check_child(test, &output);
    };
    Run::new(make(), Path::new(&home)).run(Amount::wanted(count));
}

struct Run<F: Format> {
    format: F,
    material: Material,
    folder: PathBuf,
    log: fs::File,
    ways: Vec<Way>,
    /// What the undamaged files give, for each way.
    wholes: Vec<Vec<F::Item>>,
    /// Of each way: refused, whole, unseen.
    counts: BTreeMap<&'static str, [usize; 3]>,
    peak: usize,
}

impl<F: Format> Run<F> {
    fn new(format: F, home: &Path) -> Self {
        watch::start();
        let folder = home.join("files");
        fs::create_dir(&folder).unwrap();
        let log = fs::File::create(home.join("log")).unwrap();
        let (material, ways) = (Material::of(&format), format.ways());
        let (wholes, counts) = (Vec::new(), BTreeMap::new());
        let mut run = Run { wholes, counts, peak: 0, format, material, folder, log, ways };
        for Way { name, .. } in run.ways.clone() {
            let found = run.read(&Case::whole(&run.material.files), name);
            assert_eq!(found.error, None, "the undamaged files, {name}");
            assert!(!found.items.is_empty(), "the undamaged files, {name}");
            run.wholes.push(found.items);
        }
        run
    }

    fn run(mut self, amount: Amount) {
        let changes = Changes::of(&self.material, F::BYTES_MAX);
        let forged = match amount {
            Amount::All => F::FORGED_MAX,
            Amount::Some(count) => count,
        };
        let mut made = 0;
        let others = self.material.others.len();
        for of in 0..others {
            made += usize::from(self.try_change(Change::Other { of }, 0, amount));
        }
        let forged = (0..forged).take_while(|number| self.format.forged(*number).is_some()).count();
        for number in 0..forged {
            made += usize::from(self.try_change(Change::Forged { number }, made, amount));
        }
        for number in amount.of(changes.shapes.len()) {
            made += usize::from(self.try_change(changes.shapes[number], made, amount));
        }
        for number in amount.of(changes.of_bytes()) {
            made += usize::from(self.try_change(changes.of_byte(number), made, amount));
        }
        self.report(made, others + forged + changes.shapes.len() + changes.of_bytes());
    }

    /// Makes a change and reads in the ways whose turn it is; returns whether it changed anything.
    fn try_change(&mut self, change: Change, number: usize, amount: Amount) -> bool {
        let Some(case) = Case::of(&self.format, &self.material, change) else { return false };
        for (index, way) in self.ways.clone().into_iter().enumerate() {
            if amount != Amount::All && !number.is_multiple_of(way.every) {
                continue;
            }
            let found = self.read(&case, way.name);
            let other = case.other.map(|of| self.format.whole_of(&self.material.others[of], way.name));
            let whole = other.as_ref().unwrap_or(&self.wholes[index]);
            let verdict = judge(&self.format, &case, way.name, &self.folder, whole, &found);
            match verdict {
                Ok(verdict) => {
                    let place = match verdict {
                        Verdict::Refused => 0,
                        Verdict::Whole => 1,
                        Verdict::Unseen => 2,
                    };
                    self.counts.entry(way.name).or_default()[place] += 1;
                }
                Err(wrong) => panic!("{}, {}: {wrong}", case.what, way.name),
            }
        }
        true
    }

    fn read(&mut self, case: &Case, way: &'static str) -> Reading<F::Item> {
        let what = format!("{}, {way}", case.what);
        self.log.set_len(0).unwrap();
        self.log.write_all_at(what.as_bytes(), 0).unwrap();
        case.put(&self.folder);
        let read = || allocator::peak(|| self.format.read(&self.folder, way));
        let (found, has_panicked) = watch::over(&what, read);
        assert!(!has_panicked, "panics: {what}");
        let (found, peak) = found.expect("what does not panic returns");
        assert!(peak <= F::MEMORY_MAX, "{what}: {peak} bytes of memory, and {} are allowed", F::MEMORY_MAX);
        self.peak = self.peak.max(peak);
        found
    }

    fn report(&self, made: usize, total: usize) {
        let [refused, whole, unseen] = self.counts.values().fold([0; 3], |mut sum, counts| {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            sum
        });
        println!(
            "damaged: {}: {made} of {total} changes, {} readings: {refused} refused, {whole} whole, {unseen} \
             unseen; {} KiB of memory",
            self.format.name(),
            refused + whole + unseen,
            self.peak / 1024,
        );
        println!("  refused, whole, unseen: {:?}", self.counts);
        let mut reasons = BTreeMap::<_, usize>::new();
        for part in self.material.files.iter().filter(|file| !file.is_kept).flat_map(|file| &file.parts) {
            if let Guard::Bare(reason) = part.guard {
                *reasons.entry((part.name, reason)).or_default() += part.range.len();
            }
        }
        for ((part, reason), bytes) in reasons {
            println!("  unprotected: {part}, {bytes} bytes: {reason}");
        }
        let is_mended = self.material.files.iter().all(|file| file.is_kept || file.guard == Guard::Mended);
        assert!(is_mended || refused > made / 20, "{refused} of {made} are refused");
    }
}
