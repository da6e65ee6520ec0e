//! Curves over a plane, drawn as SVG that takes its text colour from the page around it.

use std::ops::Range;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 320);

/// Readable on white and on black, also for those who do not tell red from green.
const COLOURS: [RGBColor; 4] = [
    RGBColor(31, 119, 220),
    RGBColor(230, 126, 20),
    RGBColor(120, 120, 120),
    RGBColor(170, 80, 200),
];

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// What is drawn, the first at the bottom.
    pub curves: Vec<Curve>,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is, for the legend.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
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
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The picture as an `svg` element for the middle of a page.
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
    let points = || plot.curves.iter().flat_map(|curve| &curve.points);
    let bars = plot.curves.iter().any(|curve| curve.stroke == Stroke::Bars);
    let x = range(points().map(|p| p.0), if bars { 1.0 } else { 0.0 });
    let y = range(points().map(|p| p.1).chain([0.0]), 0.0);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(x, y.start..y.end * 1.05)?;
    chart
        .configure_mesh()
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .axis_style(BLACK.mix(0.5))
        .bold_line_style(BLACK.mix(0.12))
        .light_line_style(TRANSPARENT)
        .label_style(("sans-serif", 15))
        .x_label_formatter(&|x| tick(*x))
        .y_label_formatter(&|y| tick(*y))
        .draw()?;
    for (curve, colour) in plot.curves.iter().zip(COLOURS.iter().cycle()) {
        draw_curve(&mut chart, curve, *colour)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperMiddle)
        .border_style(BLACK.mix(0.3))
        .label_font(("sans-serif", 15))
        .draw()?;
    area.present()?;
    Ok(())
}

fn draw_curve(chart: &mut Chart<'_, '_>, curve: &Curve, colour: RGBColor) -> anyhow::Result<()> {
    let points = curve.points.iter().copied();
    let drawn = match curve.stroke {
        Stroke::Line => chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
        Stroke::Dashes => {
            chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2)))?
        }
        Stroke::Dots => chart.draw_series(points.map(|p| Circle::new(p, 4, colour.filled())))?,
        Stroke::Bars => chart.draw_series(points.map(|(x, y)| {
            Rectangle::new([(x + 0.1, 0.0), (x + 0.9, y)], colour.mix(0.6).filled())
        }))?,
    };
    drawn.label(&curve.name).legend(move |(x, y)| Circle::new((x + 10, y), 5, colour.filled()));
    Ok(())
}

/// A figure on an axis: a step apart, so three digits behind the point are more than enough.
fn tick(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The span of some values, never empty, `more` wider at its end.
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
