"""The four times of day: sky colours, lamp and haze."""

from dataclasses import dataclass

from engine.tiny.shapes import Colour, Light


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Palette of one time; `sun` is the disc's place as fractions of width and horizon height."""

    sky: tuple[Colour, Colour, Colour]  # zenith, middle, horizon
    sun: tuple[float, float] | None
    sun_colour: Colour
    sun_radius: float
    glow: float
    exposure: Colour  # what the scenery is multiplied with
    haze: float  # how much of the horizon colour lies over landmarks
    light: Light


TIMES_OF_DAY: dict[str, TimeOfDay] = {
    "morning": TimeOfDay(
        sky=((0.50, 0.66, 0.86), (0.78, 0.82, 0.88), (1.00, 0.84, 0.78)),
        sun=(0.18, 0.80),
        sun_colour=(1.0, 0.95, 0.86),
        sun_radius=0.06,
        glow=0.55,
        exposure=(0.96, 0.92, 0.92),
        haze=0.30,
        light=Light((-0.55, 0.45, 0.70), (0.66, 0.62, 0.58), (0.46, 0.46, 0.50), (1.0, 0.9, 0.85)),
    ),
    "noon": TimeOfDay(
        sky=((0.12, 0.42, 0.88), (0.36, 0.64, 0.95), (0.74, 0.88, 0.98)),
        sun=None,
        sun_colour=(1.0, 1.0, 0.95),
        sun_radius=0.0,
        glow=0.0,
        exposure=(1.0, 1.0, 1.0),
        haze=0.12,
        light=Light((0.30, 0.75, 0.59), (0.70, 0.70, 0.68), (0.46, 0.47, 0.50), (0.9, 0.95, 1.0)),
    ),
    "sunset": TimeOfDay(
        sky=((0.30, 0.16, 0.44), (0.82, 0.32, 0.40), (1.00, 0.66, 0.28)),
        sun=(0.80, 0.86),
        sun_colour=(1.0, 0.86, 0.48),
        sun_radius=0.11,
        glow=0.75,
        exposure=(0.92, 0.68, 0.62),
        haze=0.30,
        light=Light((0.68, 0.30, 0.67), (0.64, 0.57, 0.50), (0.46, 0.42, 0.46), (1.0, 0.6, 0.3)),
    ),
    "night": TimeOfDay(
        sky=((0.03, 0.04, 0.16), (0.07, 0.11, 0.32), (0.20, 0.26, 0.54)),
        sun=(0.22, 0.30),
        sun_colour=(0.93, 0.94, 0.86),
        sun_radius=0.075,
        glow=0.30,
        exposure=(0.36, 0.40, 0.62),
        haze=0.22,
        light=Light((-0.35, 0.70, 0.62), (0.66, 0.66, 0.68), (0.34, 0.35, 0.42), (0.5, 0.6, 1.0)),
    ),
}
