//! The places of an image that the pixels of an output come from, row by row.

/// How many places are found at a time.
pub(super) const LANES: usize = STEPS as usize;

const STEPS: i32 = 32;

/// The x and the y of some places.
pub(super) type Places = [[f64; LANES]; 2];

/// A walk along the rows of an output. It starts with the first row.
pub(super) trait Walk {
    /// The places of the next pixels in the row. Those beyond the row's end mean nothing.
    fn places(&mut self) -> Places;

    /// Goes on with the next row.
    fn next_row(&mut self);
}

/// The whole pixels that are passed in steps of 16.16 fixed point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    at: [i32; 2],
    row: [i32; 2],
    across: [i32; 2],
    down: [i32; 2],
}

impl Fixed {
    /// `None` if the matrix only scales and moves, or a corner of the output is too far away.
    #[expect(clippy::cast_precision_loss, reason = "sides are at most 2^30")]
    pub(super) fn new(m: [f64; 6], [height, width]: [usize; 2]) -> Option<Self> {
        let near = |x: f64, y: f64| {
            (x * m[0] + y * m[1] + m[2]).abs() < 32768.0 && (x * m[3] + y * m[4] + m[5]).abs() < 32768.0
        };
        let (width, height) = (width as f64, height as f64);
        let all_near = near(0.0, 0.0) && near(width, height) && near(0.0, height) && near(width, 0.0);
        if (m[1] == 0.0 && m[3] == 0.0) || !all_near {
            return None;
        }
        let row = [fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), fixed(m[5] + m[3] * 0.5 + m[4] * 0.5)];
        let [across, down] = [[m[0], m[3]], [m[1], m[4]]].map(|step| step.map(fixed));
        Some(Fixed { at: row, row, across, down })
    }
}

/// A step that does not fit is never taken: with it, the corners would be too far away.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
fn fixed(number: f64) -> i32 {
    (number * 65536.0 + 0.5).floor() as i32
}

impl Walk for Fixed {
    #[inline(always)]
    fn places(&mut self) -> Places {
        let mut places = [[0.0; LANES]; 2];
        for ((places, at), step) in places.iter_mut().zip(&mut self.at).zip(self.across) {
            for (lane, place) in (0..STEPS).zip(places.iter_mut()) {
                *place = f64::from(at.wrapping_add(step.wrapping_mul(lane)) >> 16);
            }
            *at = at.wrapping_add(step.wrapping_mul(STEPS));
        }
        places
    }

    #[inline(always)]
    fn next_row(&mut self) {
        for (row, step) in self.row.iter_mut().zip(self.down) {
            *row = row.wrapping_add(step);
        }
        self.at = self.row;
    }
}

/// Places that are added up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summed {
    at: [f64; 2],
    row: [f64; 2],
    across: [f64; 2],
    down: [f64; 2],
    /// Whether no sum is rounded. Then a product is the same, and need not wait for the place before.
    exact: bool,
}

impl Summed {
    #[expect(clippy::cast_precision_loss, reason = "sides are at most 2^30")]
    pub(super) fn new(m: [f64; 6], [height, width]: [usize; 2]) -> Self {
        let row = [m[2] + m[1] * 0.5 + m[0] * 0.5, m[5] + m[4] * 0.5 + m[3] * 0.5];
        let (across, down) = ([m[0], m[3]], [m[1], m[4]]);
        // Multiples of 2^-16 are exact up to 2^37, which leaves room for the lanes beyond a row's end.
        let is_short = |number: f64| (number * 65536.0).fract() == 0.0;
        let (columns, rows) = ((width + LANES) as f64, height as f64);
        let exact = (0..2).all(|axis| {
            [row[axis], across[axis], down[axis]].into_iter().all(is_short)
                && row[axis].abs() + across[axis].abs() * columns + down[axis].abs() * rows < 2_f64.powi(36)
        });
        Summed { at: row, row, across, down, exact }
    }
}

impl Walk for Summed {
    #[inline(always)]
    fn places(&mut self) -> Places {
        let mut places = [[0.0; LANES]; 2];
        for ((places, at), step) in places.iter_mut().zip(&mut self.at).zip(self.across) {
            if self.exact {
                for (lane, place) in (0..STEPS).zip(places.iter_mut()) {
                    *place = *at + step * f64::from(lane);
                }
                *at += step * f64::from(STEPS);
                continue;
            }
            for place in places.iter_mut() {
                *place = *at;
                *at += step;
            }
        }
        places
    }

    #[inline(always)]
    fn next_row(&mut self) {
        for (row, step) in self.row.iter_mut().zip(self.down) {
            *row += step;
        }
        self.at = self.row;
    }
}

/// The centre of the next pixel of an output.
#[derive(Clone, Copy, Debug)]
struct Centre {
    x: f64,
    y: f64,
}

impl Centre {
    const FIRST: Centre = Centre { x: 0.5, y: 0.5 };

    /// The centres in the row from this one on, and goes past them.
    #[inline(always)]
    fn columns(&mut self) -> [f64; LANES] {
        let mut columns = [0.0; LANES];
        for (lane, column) in (0..STEPS).zip(&mut columns) {
            *column = self.x + f64::from(lane);
        }
        self.x += f64::from(STEPS);
        columns
    }

    #[inline(always)]
    fn next_row(&mut self) {
        self.x = Self::FIRST.x;
        self.y += 1.0;
    }
}

/// Places by a perspective, or by a matrix: its distance is 1, and dividing by that changes no bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Projected {
    coefficients: [f64; 8],
    centre: Centre,
}

impl Projected {
    pub(super) fn of_matrix([a, b, c, d, e, f]: [f64; 6]) -> Self {
        Self::new([a, b, c, d, e, f, 0.0, 0.0])
    }

    pub(super) fn new(coefficients: [f64; 8]) -> Self {
        Projected { coefficients, centre: Centre::FIRST }
    }
}

impl Walk for Projected {
    #[inline(always)]
    fn places(&mut self) -> Places {
        let c = &self.coefficients;
        let y = self.centre.y;
        let [mut across, mut down] = [self.centre.columns(); 2];
        for (across, down) in across.iter_mut().zip(&mut down) {
            let x = *across;
            let distance = c[6] * x + c[7] * y + 1.0;
            *across = (c[0] * x + c[1] * y + c[2]) / distance;
            *down = (c[3] * x + c[4] * y + c[5]) / distance;
        }
        [across, down]
    }

    #[inline(always)]
    fn next_row(&mut self) {
        self.centre.next_row();
    }
}
