"""Numbers in plain text as conditions on the metadata."""

from __future__ import annotations

import pytest

from boolattn.query.numbers import NumberPhrase, find_numbers, without_numbers
from boolattn.query.syntax import unparse
from boolattn.query.tree import Where, atoms
from boolattn.stores.filters import Field, number_ranges

FIELDS = {
    "minutes": (5, 240),
    "year": (1930, 2020),
    "price": (3, 900),
    "weight_kg": (0.5, 40),
    "servings": (1, 12),
    "rating": (1.0, 5.0),
}


def conditions(text, ranges=FIELDS):
    return [
        atom.text for phrase in find_numbers(text, lambda: ranges) for atom in atoms(phrase.tree)
    ]


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        # Units.
        ("soup under 30 minutes", "under 30 minutes", ["minutes<30"]),
        ("soup that takes at most 1 hour", "that takes at most 1 hour", ["minutes<=60"]),
        ("dogs over 10 kg", "over 10 kg", ["weight_kg>10"]),
        ("dogs over 900 g", "over 900 g", ["weight_kg>0.9"]),
        ("dogs over 20 lbs", "over 20 lbs", ["weight_kg>9.072"]),
        ("dogs under 1,5 kg", "under 1,5 kg", ["weight_kg<1.5"]),
        ("laptops under $500", "under $500", ["price<500"]),
        ("laptops cheaper than 0.2k", "cheaper than 0.2k", ["price<200"]),
        ("4+ servings", "4+ servings", ["servings>=4"]),
        ("rating above 4.5", "rating above 4.5", ["rating>4.5"]),
        # Without a unit, by the one range that it is in.
        ("laptops under 500", "under 500", ["price<500"]),
        ("laptops under 500 in Munich", "under 500", ["price<500"]),
        ("rooms under 500 a night", "under 500 a night", ["price<500"]),
        ("laptops between 300 and 500", "between 300 and 500", ["price>=300", "price<=500"]),
        ("laptops 300-500 dollars", "300-500 dollars", ["price>=300", "price<=500"]),
        ("laptops $300 to $500", "$300 to $500", ["price>=300", "price<=500"]),
        ("laptops under 500€", "under 500€", ["price<500"]),
        ("laptops 500 euro max", "500 euro max", ["price<=500"]),
        ("laptops with a budget of 500", "with a budget of 500", ["price<=500"]),
        # In words.
        ("soup in under half an hour", "in under half an hour", ["minutes<=30"]),
        ("at least two servings", "at least two servings", ["servings>=2"]),
        ("an hour or less", "an hour or less", ["minutes<=60"]),
        # Years and decades.
        ("pre-1990 films", "pre-1990", ["year<1990"]),
        ("films post 1990", "post 1990", ["year>1990"]),
        ("90s films", "90s", ["year>=1990", "year<=1999"]),
        ("films of the '80s", "of the '80s", ["year>=1980", "year<=1989"]),
        ("films from the nineties", "from the nineties", ["year>=1990", "year<=1999"]),
        ("films of the 00s", "of the 00s", ["year>=2000", "year<=2009"]),
        ("in the year 1999", "in the year 1999", ["year>=1999", "year<=1999"]),
        ("films before 1990", "before 1990", ["year<1990"]),
        ("films since 2001", "since 2001", ["year>=2001"]),
        ("films from the 80s", "from the 80s", ["year>=1980", "year<=1989"]),
        ("films of the 1990s", "of the 1990s", ["year>=1990", "year<=1999"]),
        ("films in 1990", "in 1990", ["year>=1990", "year<=1990"]),
        ("things from 1990", "from 1990", ["year>=1990", "year<=1990"]),
        ("films of year in 1990", "year in 1990", ["year>=1990", "year<=1990"]),
        # Two limits.
        ("films between 1980 and 1985", "between 1980 and 1985", ["year>=1980", "year<=1985"]),
        ("dogs from 5 to 10 kg", "from 5 to 10 kg", ["weight_kg>=5", "weight_kg<=10"]),
        # The limit after the number, and negation.
        ("soup in 15 minutes or less", "in 15 minutes or less", ["minutes<=15"]),
        ("soup, 30 minutes or more", "30 minutes or more", ["minutes>=30"]),
        ("soup not over 30 minutes", "not over 30 minutes", ["minutes<=30"]),
        ("soup not under 30 minutes", "not under 30 minutes", ["minutes>=30"]),
        ("soup but not over 30 minutes", "but not over 30 minutes", ["minutes<=30"]),
        ("dogs, i can't pay more than 300 euro", "can't pay more than 300 euro", ["price<=300"]),
        ("dogs, cannot spend over 300 euro", "cannot spend over 300 euro", ["price<=300"]),
        (
            "dogs dont want to pay more than 300 euro",
            "dont want to pay more than 300 euro",
            ["price<=300"],
        ),
        (
            "dogs, would not pay more than 300 euro",
            "would not pay more than 300 euro",
            ["price<=300"],
        ),
        ("dogs, we can pay more than 300 euro", "more than 300 euro", ["price>300"]),
        ("soup with a rating of 4 or higher", "with a rating of 4 or higher", ["rating>=4"]),
        ("soup, rating 4 and up", "rating 4 and up", ["rating>=4"]),
        # The name of the field beside the number.
        ("soup under rating 3 with leeks", "under rating 3", ["rating<3"]),
        ("dogs with a price over 300", "with a price over 300", ["price>300"]),
        ("laptops for more than 500 price points", "for more than 500 price", ["price>500"]),
        ("films from 1990 on", "from 1990 on", ["year>=1990"]),
        ("films from 1990 on without songs", "from 1990 on", ["year>=1990"]),
        ("films from 1990 on disc", "from 1990", ["year>=1990", "year<=1990"]),
        ("films from 1990 onwards", "from 1990 onwards", ["year>=1990"]),
        ("films, 1990 or later", "1990 or later", ["year>=1990"]),
        ("films from 1990 and before", "from 1990 and before", ["year<=1990"]),
        # What follows is no unit.
        ("before 1990 films", "before 1990 ", ["year<1990"]),
    ],
)
def test_a_number_becomes_a_condition_on_the_field_that_fits(text, phrase, expected):
    phrases = find_numbers(text, lambda: FIELDS)
    assert "".join(text[found.start : found.end] for found in phrases) == phrase
    assert conditions(text) == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("dogs older than 8 years", "age_years", ["age_years>8"]),
        ("dog, 10 years or older", "age_years", ["age_years>=10"]),
        ("not older than 5", "age", ["age<=5"]),
        ("newer than 3 months", "age_months", ["age_months<3"]),
        ("younger than 2 years", "age_months", ["age_months<24"]),
        ("films older than 1990", "year", ["year<1990"]),
    ],
)
def test_what_is_older_has_a_higher_age_and_an_earlier_year(text, name, expected):
    assert conditions(text, {name: (1950, 2020) if name == "year" else (1, 60)}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "phones under 5 inches",  # no field fits
        "laptops under 5",  # in the range of several
        "laptops under 5000",  # in none
        "beers weaker than 500",  # the word asks for another field
        "laptops under 500 laptops",
        "films 1990",  # no comparison
        "soup under season 3",  # no field has this name
        "meals for 4 or more people",  # the unit does not follow the number
        "1984",
        "the 7 samurai",
        "films 1939-1945",  # of a war, it may be
        "chapters 3-5",
        "people in their twenties",
        "people in their 70s",
        "20s",
        "thirty-five minutes",
        "no smoking in the house of 1984 rooms",
        'talks named "under 30 minutes"',
        "under . minutes",
        "",
    ],
)
def test_other_numbers_stay_words(text):
    assert conditions(text) == []


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("no cars older than 2015", "no cars older than 2015", "year>=2015"),
        ("no car that costs over 500", "no car that costs over 500", "price<=500"),
        ("cars except those before 2015", "except those before 2015", "year>=2015"),
        ("no films in 2012", "no films in 2012", "NOT (year>=2012 AND year<=2012)"),
        ("no smoking in 2012", "in 2012", "year>=2012 AND year<=2012"),
        ("anything but before 2015", "anything but before 2015", "year>=2015"),
        ("not from before 2015", "not from before 2015", "year>=2015"),
        # What is wanted of the rest, as a rule.
        ("no diesel under 500 euro", "under 500 euro", "price<500"),
        ("no cars, before 2015", "before 2015", "year<2015"),
    ],
)
def test_a_condition_on_what_is_excluded_is_excluded(text, phrase, expected):
    [read] = find_numbers(text, lambda: {"price": (100, 900), "year": (2005, 2020)})
    assert (text[read.start : read.end], unparse(read.tree)) == (phrase, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cars under 100.000 km", ["mileage<100000"]),
        ("cars, max. 150000 km", ["mileage<=150000"]),
        ("flats below 800 euro", ["rent<800"]),
        ("at least 3 rooms, max 1200", ["rooms>=3", "rent<=1200"]),
        ("more than 2 rooms, less than 100 m2", ["rooms>2", "sqm<100"]),
        ("not higher than 3rd floor", ["floor<=3"]),
        ("available from february 2027", ["available>=2027-02"]),
        ("jobs, at least £25 an hour", ["rent>=25"]),  # it is no number of hours
        ("more than 500 euros and less than 900", ["rent>500", "rent<900"]),
        ("not starting in 2026", ["available>=2026", "available<=2026"]),
    ],
)
def test_conditions_that_people_type_for_cars_and_flats(text, expected):
    ranges = {
        "mileage": (5000, 250_000),
        "rent": (400, 2500),
        "rooms": (1, 6),
        "sqm": (20, 180),
        "floor": (0, 12),
        "available": (2026, 2027, "2026-01-01", "2027-12-31"),
        "hours": (8, 40),
    }
    assert conditions(text, ranges) == expected


def test_a_decade_is_one_of_years():
    assert conditions("90s films", {"year": (1917, 2021), "price": (10, 2000)})[0] == "year>=1990"
    assert conditions("dating in my 50s", {"year": (1917, 2021)}) == []


def test_a_name_may_be_a_unit():
    assert conditions("files under 300 kB", {"kB": (1, 900), "pages": (1, 400)}) == ["kB<300"]


def test_a_number_that_fits_two_fields_stays_words():
    two = {"prep_minutes": (5, 30), "cook_minutes": (5, 30)}
    assert conditions("soup under 20 minutes", two) == []
    assert conditions("soup, cook under 20 minutes", two) == ["cook_minutes<20"]


def test_a_year_is_no_price_and_a_price_no_year():
    assert conditions("before 1990", {"price": (3, 5000)}) == []
    assert conditions("films under 300", {"year": (1930, 2020)}) == []
    assert conditions("films before 1066", {"year": (1930, 2020)}) == ["year<1066"]


def test_dates_are_compared_by_their_years():
    # From 1970 to a day of 1995.
    fields = {"on": Field(dates=(0, 8e8)), "pages": Field(numbers=(1, 20)), "tag": Field()}
    ranges = number_ranges(fields)
    assert ranges == {"on": (1970, 1995, "1970-01-01", "1995-05-09"), "pages": (1, 20)}
    assert conditions("talks after 1985", ranges) == ["on>1985"]
    assert conditions("talks in the 80s", ranges) == ["on>=1980", "on<=1989"]


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("before March 2021", "bought<2021-03"),
        ("after 3 March 2021", "bought>2021-03-03"),
        ("bought since Sept. 2021", "bought>=2021-09"),
        ("from March 2021 on", "bought>=2021-03"),
        ("in May 2020", "bought>=2020-05 AND bought<=2020-05"),
        ("bought on May 3rd, 2020", "bought>=2020-05-03 AND bought<=2020-05-03"),
        ("between May 2020 and 2021-03-01", "bought>=2020-05 AND bought<=2021-03-01"),
        ("not in 2022", "NOT (bought>=2022 AND bought<=2022)"),
        ("that were not bought in 2022", "NOT (bought>=2022 AND bought<=2022)"),
        ("that weren't bought in May 2020", "NOT (bought>=2020-05 AND bought<=2020-05)"),
        ("not installed in 2022", "NOT (bought>=2022 AND bought<=2022)"),
        ("never opened before 2022", "bought>=2022"),
        ("but not from the 90s", "NOT (bought>=1990 AND bought<=1999)"),
        ("neither from 2020", "NOT (bought>=2020 AND bought<=2020)"),
    ],
)
def test_a_date_may_have_the_name_of_a_month_and_a_period_may_be_negated(phrase, expected):
    text = f"laptops {phrase}"
    [read] = find_numbers(
        text, lambda: {"bought": (2018, 2023, "2018-02-03", "2023-11-30"), "price": (30, 2400)}
    )
    assert (text[read.start : read.end], unparse(read.tree)) == (phrase, expected)


def test_a_month_is_asked_of_dates_only():
    assert conditions("films before March 1990") == []
    assert (
        conditions("films about marble 2020", {"on": (2018, 2023, "2018-02-03", "2023-11-30")})
        == []
    )


@pytest.mark.parametrize("text", ["May 2020", "films of May 2020", "films, 2020-05 or later"])
def test_a_month_of_a_year_needs_no_preposition(text):
    expected = ["on>=2020-05", "on<=2020-05"][: 1 if "later" in text else 2]
    assert conditions(text, {"on": (2018, 2023, "2018-02-03", "2023-11-30")}) == expected
    assert conditions(text, {"year": (2018, 2023)}) == []


def test_signs_compare_without_a_field_before_them():
    assert conditions("shoes < 100, > 20", {"price": (5, 200)}) == ["price<100", "price>20"]
    assert conditions("shoes <=100", {"price": (5, 200)}) == ["price<=100"]


def test_two_phrases_are_found_in_their_order():
    text = "under 30 minutes and before 1990"
    assert conditions(text) == ["minutes<30", "year<1990"]


def test_the_rest_keeps_its_places():
    text = "soup under 15 minutes without fish"
    words = without_numbers(text, find_numbers(text, lambda: FIELDS))
    assert words == "soup" + " " * 18 + "without fish"
    assert len(words) == len(text)
    assert without_numbers("under 5 minutes!", [NumberPhrase(0, 15, Where("x"))]) == "everything"
    assert without_numbers("?", []) == "?"
    text = "built after 2015 and before 2018, petrol"
    ranges = {"year": (2005, 2020)}
    assert without_numbers(text, find_numbers(text, lambda: ranges)).split() == ["petrol"]


def test_a_number_is_converted_to_the_unit_of_a_field():
    ranges = {"Installed Size (kB)": (10, 900_000)}
    assert conditions("tools over 10 MB", ranges) == ["Installed Size (kB)>10240"]
    assert conditions("tools under 50 kB", ranges) == ["Installed Size (kB)<50"]
    assert conditions("tools over 2 GB", ranges) == ["Installed Size (kB)>2097152"]
    assert conditions("tools over 200 kg", ranges) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tubas but nothing heavier than 5 kg", "weight<=5"),
        ("nothing over 100 euros", "price<=100"),
        ("no heavier than 1 kg", "weight<=1"),
        ("cheaper than 100 euros or lighter than 1 kg", "price<100 OR weight<1"),
        ("before 1990 or after 2000", "year<1990 OR year>2000"),
    ],
)
def test_conditions_are_negated_and_joined_by_or(text, expected):
    ranges = {"price": (5, 3000), "weight": (0.8, 300), "year": (1900, 2020)}
    [phrase] = find_numbers(text, lambda: ranges)
    assert unparse(phrase.tree) == expected


@pytest.mark.parametrize(
    "text", ["under 100 euros or with a pool", "tubas or anything under 50 euros"]
)
def test_a_condition_beside_or_and_words_stays_words(text):
    assert find_numbers(text, lambda: {"price": (5, 3000)}) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min 150 hp max 15000 euro", ["power_hp>=150", "price<=15000"]),
        ("at least 150 hp max price 15000", ["power_hp>=150", "price<=15000"]),
        ("15000 euro max", ["price<=15000"]),
        ("diesel without more than 150 hp", ["power_hp<=150"]),
        ("manual, no old cars over 15000 euro", ["price<=15000"]),
    ],
)
def test_limits_beside_each_other_and_negated_ones(text, expected):
    assert conditions(text, {"power_hp": (60, 300), "price": (900, 60000)}) == expected


FLATS = {
    "monthlyRent": (400, 4500),
    "deposit_eur": (0, 9000),
    "bedrooms": (0, 5),
    "ageYears": (1, 14),
    "availableFrom": (2025, 2026, "2025-09-01", "2026-02-01"),
    "distance_to_station_m": (50, 3000),
}


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("2 bedrooms", "2 bedrooms", "bedrooms=2"),
        ("two bedroom flat", "two bedroom", "bedrooms=2"),
        ("flat, not 2 bedrooms", "not 2 bedrooms", "NOT bedrooms=2"),
        ("not furnished 2 bedrooms", "2 bedrooms", "bedrooms=2"),
        ("exactly 3 bedrooms", "exactly 3 bedrooms", "bedrooms=3"),
        ("2 or 3 bedrooms", "2 or 3 bedrooms", "bedrooms=2 OR bedrooms=3"),
        ("bedrooms 2 or 3", "bedrooms 2 or 3", "bedrooms=2 OR bedrooms=3"),
        ("flat -2 bedrooms", "-2 bedrooms", "NOT bedrooms=2"),
        ("deposit under 600 euro", "deposit under 600 euro", "deposit_eur<600"),
        ("under 300 euro", "under 300 euro", "monthlyRent<300"),  # none is so cheap
        ("bedrooms 3", "bedrooms 3", "bedrooms=3"),
        ("4 bedrooms or 3 bedrooms", "4 bedrooms or 3 bedrooms", "bedrooms=4 OR bedrooms=3"),
        ("3 year old dog", "3 year old", "ageYears=3"),
        ("dog aged 3 to 6", "aged 3 to 6", "ageYears>=3 AND ageYears<=6"),
        ("no deposit", "no deposit", "deposit_eur=0"),
        ("no deposit required, berlin", "no deposit required", "deposit_eur=0"),
        ("rent 800-1200", "rent 800-1200", "monthlyRent>=800 AND monthlyRent<=1200"),
        # Of amounts the rent is meant.
        ("furnished under 1000", "under 1000", "monthlyRent<1000"),
        ("under 900 a month", "under 900 a month", "monthlyRent<900"),
    ],
)
def test_the_name_of_a_field_beside_a_number(text, phrase, expected):
    [read] = find_numbers(text, lambda: FLATS)
    assert (text[read.start : read.end], unparse(read.tree)) == (phrase, expected)


@pytest.mark.parametrize(
    "text",
    [
        "9 bedrooms",  # no document has so many
        "3 months old",  # the age is in years
        "rent 900",  # nobody wants exactly this
        "over 13s",
        "no distance",  # no document has 0
        "no deposit box",
    ],
)
def test_a_name_and_a_number_that_stay_words(text):
    assert conditions(text, FLATS) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("between 10 and 20 september 2025", "on>=2025-09-10 AND on<=2025-09-20"),
        ("10-20 september 2025", "on>=2025-09-10 AND on<=2025-09-20"),
        ("from 1 september to 31 october 2025", "on>=2025-09-01 AND on<=2025-10-31"),
        ("from 2024 to may 2025", "on>=2024 AND on<=2025-05"),
        ("15.09.2025", "on>=2025-09-15 AND on<=2025-09-15"),
        ("after 31/10/2025", "on>2025-10-31"),
        # The only year in which these months have dates.
        ("not in october", "NOT (on>=2025-10 AND on<=2025-10)"),
        ("before 20 january", "on<2026-01-20"),
        ("1 to 5 october", "on>=2025-10-01 AND on<=2025-10-05"),
        ("12 october", "on>=2025-10-12 AND on<=2025-10-12"),
        (
            "in october or november",
            IN_AUTUMN := "(on>=2025-10 AND on<=2025-10) OR (on>=2025-11 AND on<=2025-11)",
        ),
        ("in october and november 2025", IN_AUTUMN),
        ("on october", "on>=2025-10 AND on<=2025-10"),
    ],
)
def test_dates_as_people_type_them(text, expected):
    [read] = find_numbers(text, lambda: {"on": (2025, 2026, "2025-09-01", "2026-02-01")})
    assert (text[read.start : read.end], unparse(read.tree)) == (text, expected)


@pytest.mark.parametrize("text", ["in may", "after 3/4/2025", "may be fun", "october", "in 10 may"])
def test_a_day_of_no_or_of_two_years_stays_words(text):
    assert conditions(text, {"on": (2025, 2026, "2025-09-01", "2026-02-01")}) == []
    two = {"on": (2023, 2026, "2023-01-01", "2026-02-01")}
    assert conditions("in october", two) == []


def test_a_size_without_a_unit_is_exact():
    sizes = {"frame_size": (48, 62), "wheel_size": (26, 29)}
    assert conditions("bike, size 54", sizes) == ["frame_size=54"]
    assert conditions("bike, size 54 cm", sizes) == []


JUNE = ["start_date>=2025-06", "start_date<=2025-06"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 year old dog", ["age=3"]),
        ("starting after May 2025", ["start_date>2025-05"]),
        ("start in May or June", ["start_date>=2025-05", "start_date<=2025-05", *JUNE]),
        ("start July or August", []),
        ("posted in May", ["posted_on>=2025-05", "posted_on<=2025-05"]),
    ],
)
def test_a_name_in_other_forms(text, expected):
    dates = (2025, 2025, "2025-03-01", "2025-10-01")
    assert conditions(text, {"age": (1, 14), "start_date": dates, "posted_on": dates}) == expected


def test_what_is_counted_in_a_day_is_no_money():
    assert conditions("birds with over 30 a day", {"flights": (1, 90)}) == ["flights>30"]


def test_pounds_are_a_weight_where_a_field_has_one():
    assert conditions("dogs under 20 pounds", {"price": (5, 900), "weight_kg": (1, 60)}) == [
        "weight_kg<9.072"
    ]
    assert conditions("lamps under 20 pounds", {"price": (5, 900)}) == ["price<20"]


def test_a_preposition_is_no_name_of_a_field():
    ranges = {"built": (1890, 2023), "available_from": (2025, 2026, "2025-03-01", "2026-01-15")}
    assert conditions("not from the 90s", ranges) == ["built>=1990", "built<=1999"]


def test_a_field_in_thousands():
    ranges = {"salary_thousand_eur": (18, 120)}
    for text in (
        "salary over 60k",
        "salary over 60000",
        "salary over 60",
        "over 60 thousand euros",
    ):
        assert conditions(text, ranges) == ["salary_thousand_eur>60"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("made in the 90s or 80s", "(year>=1990 AND year<=1999) OR (year>=1980 AND year<=1989)"),
        ("in 1990 or 1992", "(year>=1990 AND year<=1990) OR (year>=1992 AND year<=1992)"),
        ("manual no cars older than 2012", "year>=2012"),
    ],
)
def test_two_periods_and_what_is_older(text, expected):
    [read] = find_numbers(text, lambda: {"year": (1980, 2020)})
    assert unparse(read.tree) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rent max 900, deposit max 500", ["monthlyRent<=900", "deposit_eur<=500"]),
        ("rent max 900 deposit max 500", ["monthlyRent<=900", "deposit_eur<=500"]),
        ("deposit under 600 and rent under 900", ["deposit_eur<600", "monthlyRent<900"]),
        ("rent under 100, bedrooms 2", ["monthlyRent<100", "bedrooms=2"]),
        ("2 bedrooms max 1500", ["monthlyRent<=1500", "bedrooms=2"]),
        ("1 bedroom 2 bathrooms", ["bedrooms=1", "bathrooms=2"]),
        ("rent neither under 500 nor over 900", ["monthlyRent>=500", "monthlyRent<=900"]),
    ],
)
def test_each_number_belongs_to_the_name_beside_it(text, expected):
    read = conditions(text, FLATS | {"bathrooms": (1, 3)})
    assert sorted(read) == sorted(expected)


@pytest.mark.parametrize(
    "text", ["31 february 2025", "before 30 february", "after 2025-02-29", "before 29 february"]
)
def test_a_day_that_no_calendar_has_is_text(text):
    assert conditions(text, {"on": (2025, 2025, "2025-01-01", "2025-12-31")}) == []
