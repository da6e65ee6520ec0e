//! Curves over a plane, drawn as SVG with the page's text colour. The legend stands beside the plot, where it covers no
//! curve.

use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 320);

/// Readable on white, on black, and by colour-blind readers.
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 220),
    RGBColor(230, 126, 20),
    RGBColor(120, 120, 120),
    RGBColor(170, 80, 200),
    RGBColor(0, 158, 115),
    RGBColor(200, 60, 80),
    RGBColor(150, 130, 0),
    RGBColor(0, 150, 190),
];

/// A picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// How the horizontal axis is divided.
    pub x_axis: Axis,
    /// How the vertical axis is divided.
    pub y_axis: Axis,
    /// What is drawn, the first at the bottom.
    pub curves: Vec<Curve>,
    /// Moments along the horizontal axis, with their labels.
    pub marks: Vec<(f64, String)>,
}

impl Plot {
    /// Curves over axes that are divided evenly.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        [x, y]: [&str; 2],
        curves: impl IntoIterator<Item = Curve>,
    ) -> Self {
        let curves = curves.into_iter().collect();
        Self { title: title.into(), x: x.into(), y: y.into(), curves, ..Self::default() }
    }
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Axis {
    /// Evenly.
    #[default]
    Linear,
    /// By powers of ten. Values at or below zero are not drawn.
    Log,
    /// Shares from 0 to 1 on the scale of the remainder: as far from 90 % to 99 % as from 99 % to 99.9 %. 1 itself is
    /// not drawn.
    Nines,
}

impl Axis {
    /// The position of `value` on an even scale.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::Nines => -(1.0 - value).log10(),
        }
    }

    /// The label at `place`.
    fn label(self, place: f64) -> String {
        match self {
            Self::Linear => tick(place),
            // No label between powers: its value would not be round.
            _ if (place - place.round()).abs() > 1e-6 => String::new(),
            Self::Log => tick(10_f64.powf(place)),
            // Each power is one more nine.
            Self::Nines => {
                format!("{:.*}", digits(place - 2.0), 100.0 - 100.0 * 10_f64.powf(-place))
            }
        }
    }

    /// The drawn span of an axis with values in `span`.
    fn whole(self, span: Range<f64>) -> Range<f64> {
        match self {
            Self::Linear => span,
            Self::Log => span.start.floor()..span.end.ceil().max(span.start.floor() + 1.0),
            Self::Nines => 0.0..span.end.ceil().max(1.0),
        }
    }

    /// The number of labels in a span: one for each power.
    fn labels(self, span: &Range<f64>, usual: usize) -> usize {
        match self {
            Self::Linear => usual,
            _ => digits(span.end - span.start) + 1,
        }
    }
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is, for the legend.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its points, from left to right. A NaN is a gap.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// A curve through `points`.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        stroke: Stroke,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { name: name.into(), stroke, points: points.into_iter().collect() }
    }
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stroke {
    /// A line from point to point.
    Line,
    /// A dashed line from point to point: what was expected.
    Dashes,
    /// A dot at each point: what was measured.
    Dots,
    /// Bars from zero, each one unit wide to the right of its point.
    Bars,
    /// Bars from zero that hide those behind them: parts of a sum, with the whole drawn first.
    Stack,
}

impl Stroke {
    /// The CSS class in the page's style.
    const fn class(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Dashes => "dashes",
            Self::Dots => "dots",
            Self::Bars | Self::Stack => "bars",
        }
    }
}

/// The look of a curve, for the list beside the plot.
pub(super) struct Key<'p> {
    pub(super) name: &'p str,
    /// A CSS class of the page's style.
    pub(super) class: &'static str,
    /// A CSS colour.
    pub(super) colour: String,
}

/// The legend of a plot.
pub(super) fn keys(plot: &Plot) -> impl Iterator<Item = Key<'_>> {
    plot.curves.iter().zip(COLOURS.iter().cycle()).map(|(curve, RGBColor(red, green, blue))| Key {
        name: &curve.name,
        class: curve.stroke.class(),
        colour: format!("rgb({red} {green} {blue})"),
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The plot as an `svg` element to embed in a page.
pub(super) fn svg(plot: &Plot) -> anyhow::Result<String> {
    let mut svg = String::new();
    draw(plot, &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
    let size = format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1);
    Ok(svg
        .replacen(&size, "", 1)
        .replacen(" xmlns=\"http://www.w3.org/2000/svg\"", " role=\"img\"", 1)
        .replace("#000000", "currentColor"))
}

fn draw(plot: &Plot, area: &Area<'_>) -> anyhow::Result<()> {
    let placed: Vec<_> = plot.curves.iter().map(|curve| placed(plot, curve)).collect();
    let points = || placed.iter().flat_map(|curve| &curve.points).filter(|p| is_there(p));
    let bars = plot.curves.iter().any(|curve| matches!(curve.stroke, Stroke::Bars | Stroke::Stack));
    let marks = plot.marks.iter().map(|(at, _)| plot.x_axis.place(*at));
    let x = range(points().map(|p| p.0).chain(marks), if bars { 1.0 } else { 0.0 });
    let x = plot.x_axis.whole(x);
    let y = match plot.y_axis {
        Axis::Linear => {
            let y = range(points().map(|p| p.1).chain([0.0]), 0.0);
            y.start..y.end * 1.05
        }
        axis => axis.whole(range(points().map(|p| p.1), 0.0)),
    };
    let labels = (plot.x_axis.labels(&x, 10), plot.y_axis.labels(&y, 10));
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(42)
        .y_label_area_size(84)
        .build_cartesian_2d(x, y.clone())?;
    chart
        .configure_mesh()
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .x_labels(labels.0)
        .y_labels(labels.1)
        .axis_style(BLACK.mix(0.5))
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 15))
        .x_label_formatter(&|x| plot.x_axis.label(*x))
        .y_label_formatter(&|y| plot.y_axis.label(*y))
        .draw()?;
    for (at, name) in &plot.marks {
        let at = plot.x_axis.place(*at);
        let line = vec![(at, y.start), (at, y.end)];
        chart.draw_series([PathElement::new(line, BLACK.mix(0.35))])?;
        let text = Text::new(name.clone(), (4, 2), ("sans-serif", 15).into_font());
        let text = EmptyElement::at((at, y.end)) + text;
        chart.draw_series([text])?;
    }
    for (curve, colour) in placed.iter().zip(COLOURS.iter().cycle()) {
        draw_curve(&mut chart, curve, *colour)?;
    }
    area.present()?;
    Ok(())
}

/// The curve in the axes' coordinates; a point outside the axes' domain is a gap.
fn placed(plot: &Plot, curve: &Curve) -> Curve {
    let points = curve.points.iter();
    let points = points.map(|(x, y)| (plot.x_axis.place(*x), plot.y_axis.place(*y))).collect();
    Curve { points, ..curve.clone() }
}

fn is_there(&(x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}

fn draw_curve(chart: &mut Chart<'_, '_>, curve: &Curve, colour: RGBColor) -> anyhow::Result<()> {
    for points in curve.points.split(|point| !is_there(point)) {
        let points = points.iter().copied();
        match curve.stroke {
            Stroke::Line => chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
            Stroke::Dashes => {
                chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2)))?
            }
            Stroke::Dots => {
                chart.draw_series(points.map(|p| Circle::new(p, 4, colour.filled())))?
            }
            Stroke::Bars => chart.draw_series(points.map(|(x, y)| {
                Rectangle::new([(x + 0.1, 0.0), (x + 0.9, y)], colour.mix(0.6).filled())
            }))?,
            Stroke::Stack => chart.draw_series(
                points.map(|(x, y)| Rectangle::new([(x, 0.0), (x + 1.0, y)], colour.filled())),
            )?,
        };
    }
    Ok(())
}

/// A small number of powers as a count; zero if negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few, rounded")]
fn digits(powers: f64) -> usize {
    powers.round().max(0.0) as usize
}

/// A label on an axis: labels are a step apart, so three decimals suffice.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The span of the values, never empty, and `more` wider at its end.
fn range(values: impl Iterator<Item = f64>, more: f64) -> Range<f64> {
    let span = values.fold(f64::INFINITY..f64::NEG_INFINITY, |span, value| {
        span.start.min(value)..span.end.max(value)
    });
    if span.start.is_infinite() {
        return 0.0..1.0;
    }
    let end = span.end + more;
    span.start..if end > span.start { end } else { span.start + 1.0 }
}
