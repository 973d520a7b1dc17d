//! Caffe's random sequence in a net of several data layers, of both its eras and for every rank, compared
//! with a second implementation of Caffe's set-up and transformer, draw by draw, which shares only the
//! generator with the library.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

use std::path::Path;

use percolator::net::NetState;
use percolator::order::Ranks;
use percolator::transform::CaffeEra;
use percolator::{Feed, FeedBuilder, Net, Phase, Seed};
use rand_mt::Mt;
use tempfile::TempDir;

use crate::common::{arrays, pixel, write_images};

const RECORDS: usize = 13;
const SIDE: usize = 8;
const CROP: usize = 5;
const FILES: usize = 7;
const SKIP: u32 = 4;

/// A layer that draws, one that does not, a list that is shuffled and skipped into, and another layer that
/// draws.
const NET: &str = "
    layer { name: 'a' type: 'Data' top: 'a' top: 'la' transform_param { mirror: true crop_size: 5 }
            data_param { source: 'images' backend: LMDB batch_size: 4 } }
    layer { name: 'still' type: 'Data' top: 's' data_param { source: 'images' backend: LMDB batch_size: 4 } }
    layer { name: 'list' type: 'ImageData' top: 'i' top: 'li' transform_param { crop_size: 5 }
            image_data_param { source: 'list.txt' root_folder: 'f' batch_size: 5 shuffle: true
                               rand_skip: 4 } }
    layer { name: 'b' type: 'Data' top: 'b' top: 'lb' transform_param { crop_size: 5 }
            data_param { source: 'images' backend: LMDB batch_size: 4 } }";

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_images(&folder.path().join("images"), RECORDS, 1, SIDE, SIDE);
    let mut list = String::new();
    for file in 0..FILES {
        let mut encoder = png::Encoder::new(
            std::fs::File::create(folder.path().join(format!("f{file}.png"))).unwrap(),
            SIDE as u32,
            SIDE as u32,
        );
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&[0; SIDE * SIDE]).unwrap();
        list += &format!("{file}.png {file}\n");
    }
    std::fs::write(folder.path().join("list.txt"), list).unwrap();
    folder
}

/// The seeds that Caffe's set-up gives the layers, in the order of the net.
struct SetUp {
    a: Mt,
    shuffle: Mt,
    skip: u32,
    b: Mt,
}

impl SetUp {
    fn new(seed: u32, era: CaffeEra) -> Self {
        let mut parent = Mt::new(seed);
        // The thread of DataReader, if there is one; InitRand of DataTransformer twice, of which the second
        // counts; and the prefetch thread.
        let data_layer = |parent: &mut Mt, draws: bool| {
            if era == CaffeEra::DataReader {
                parent.next_u32();
            }
            let [_, kept] = if draws { [parent.next_u32(), parent.next_u32()] } else { [0; 2] };
            parent.next_u32();
            Mt::new(kept)
        };
        let a = data_layer(&mut parent, true);
        data_layer(&mut parent, false);
        parent.next_u32();
        let (shuffle, skip) = (Mt::new(parent.next_u32()), parent.next_u32() % SKIP);
        // The transformer's seed that counts, and the thread's.
        parent.next_u32();
        parent.next_u32();
        let b = data_layer(&mut parent, true);
        SetUp { a, shuffle, skip, b }
    }
}

/// The crop of a record, mirrored if `mirrors` is set and the draw says so.
fn cropped(record: usize, mirrors: bool, generator: &mut Mt) -> Vec<f32> {
    let is_mirrored = mirrors && generator.next_u32() % 2 == 1;
    let places = (SIDE - CROP + 1) as u32;
    let (top, left) = ((generator.next_u32() % places) as usize, (generator.next_u32() % places) as usize);
    let mut pixels = Vec::new();
    for row in top..top + CROP {
        let mut columns: Vec<usize> = (left..left + CROP).collect();
        if is_mirrored {
            columns.reverse();
        }
        pixels.extend(columns.iter().map(|column| f32::from(pixel(record, row * SIDE + column))));
    }
    pixels
}

/// Boost's `random_shuffle` with `uniform_int`, which rejects numbers past the last whole bucket.
fn shuffle(order: &mut [i32], generator: &mut Mt) {
    for last in (1..order.len()).rev() {
        let choices = last as u64 + 1;
        let bucket = (1_u64 << 32) / choices;
        let mut draws = std::iter::repeat_with(|| u64::from(generator.next_u32()) / bucket);
        let choice = draws.find(|&choice| choice < choices).unwrap();
        order.swap(last, choice as usize);
    }
}

fn layer(net: &Net, name: &str, root: &Path, seed: u32, era: CaffeEra) -> FeedBuilder {
    let layers = Feed::layers_of(net, &NetState::from(Phase::Train)).unwrap();
    let layer = layers.into_iter().find(|layer| layer.spec().layer == name).unwrap();
    layer.root(root).seed(Seed::Caffe { seed, era }).threads(2)
}

#[test]
fn every_layer_of_a_net_draws_as_in_caffe() {
    let folder = folder();
    let net = Net::from_text(NET).unwrap();
    for seed in [1701, 0, 42, u32::MAX] {
        for era in [CaffeEra::Today, CaffeEra::DataReader] {
            for (rank, of) in [(0, 1), (1, 2), (2, 3)] {
                let set_up = SetUp::new(seed, era);
                for (name, mirrors, mut generator) in [("a", true, set_up.a), ("b", false, set_up.b)] {
                    let feed = layer(&net, name, folder.path(), seed, era).share(Ranks { first: rank, of });
                    let records: Vec<usize> = (0..24).map(|number| (rank + number * of) % RECORDS).collect();
                    let pixels: Vec<f32> =
                        records.iter().flat_map(|&record| cropped(record, mirrors, &mut generator)).collect();
                    let labels: Vec<i32> = records.iter().map(|&record| record as i32).collect();
                    assert!(
                        arrays(feed, 6) == (pixels, labels),
                        "layer {name}, seed {seed}, {era:?}, rank {rank} of {of}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_list_among_other_layers_is_shuffled_and_begun_as_in_caffe() {
    let folder = folder();
    let net = Net::from_text(NET).unwrap();
    for seed in [1701, 0, 42, u32::MAX] {
        for era in [CaffeEra::Today, CaffeEra::DataReader] {
            let SetUp { mut shuffle, skip, .. } = SetUp::new(seed, era);
            let mut order: Vec<i32> = (0..FILES as i32).collect();
            self::shuffle(&mut order, &mut shuffle);
            let mut labels = order[skip as usize..].to_vec();
            while labels.len() < 30 {
                self::shuffle(&mut order, &mut shuffle);
                labels.extend(&order);
            }
            let (_, found) = arrays(layer(&net, "list", folder.path(), seed, era), 6);
            assert_eq!(found, labels[..30], "seed {seed}, {era:?}");
        }
    }
}

#[test]
fn a_lane_draws_as_the_solver_of_its_rank() {
    let folder = folder();
    let net = Net::from_text(NET).unwrap();
    let whole = layer(&net, "b", folder.path(), 9, CaffeEra::Today);
    let mut feed = whole.devices((0..4).map(percolator::Device::host)).build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(2);
    let of_lane: Vec<f32> =
        lane.take(6).flat_map(|batch| batch.unwrap().pixels::<f32>().unwrap().to_vec()).collect();
    // As one of several processes, which gets Caffe's seed: the solver's plus its rank.
    let alone = layer(&net, "b", folder.path(), 9 + 2, CaffeEra::Today).share(Ranks { first: 2, of: 4 });
    assert_eq!(arrays(alone, 6).0, of_lane);
}
