// The transform backwards, a row or column at a time, and what files hold.
#include "workloads/dwt2d/dwt2d.hpp"

#include <algorithm>
#include <utility>

namespace {

// One colour's cells, row by row.
struct Plane {
  std::size_t width;
  std::size_t height;
  std::vector<int> cells;
};

// Of a sum of two neighbours, by 2 or 4: downwards, or as Rodinia's.
int share_of(int sum, int divisor, bool towards_zero) {
  const int share = sum / divisor;
  return !towards_zero && share * divisor > sum ? share - 1 : share;
}

// A row or column: low frequencies, then high ones, becomes what they were made of.
void join(std::vector<int>& line, bool towards_zero) {
  const std::size_t size = line.size();
  const std::size_t lows = (size + 1) / 2;
  const std::size_t highs = size / 2;
  if (highs == 0) {
    return;
  }
  const auto high = [&](std::size_t i) { return line[lows + (i < highs ? i : highs - 1)]; };
  std::vector<int> joined(size);
  for (std::size_t i = 0; i < lows; ++i) {
    const int sum = high(i == 0 ? 0 : i - 1) + high(i) + 2;
    joined[2 * i] = line[i] - share_of(sum, 4, towards_zero);
  }
  for (std::size_t i = 0; i < highs; ++i) {
    const int left = joined[2 * i];
    const int right = 2 * i + 2 < size ? joined[2 * i + 2] : left;
    joined[2 * i + 1] = line[lows + i] + share_of(left + right, 2, towards_zero);
  }
  line = std::move(joined);
}

// Of the top left width x height cells.
void join_columns(Plane& plane, std::size_t width, std::size_t height, bool towards_zero) {
  std::vector<int> line(height);
  for (std::size_t x = 0; x < width; ++x) {
    for (std::size_t y = 0; y < height; ++y) {
      line[y] = plane.cells[y * plane.width + x];
    }
    join(line, towards_zero);
    for (std::size_t y = 0; y < height; ++y) {
      plane.cells[y * plane.width + x] = line[y];
    }
  }
}

void join_rows(Plane& plane, std::size_t width, std::size_t height, bool towards_zero) {
  std::vector<int> line(width);
  for (std::size_t y = 0; y < height; ++y) {
    int* row = plane.cells.data() + y * plane.width;
    line.assign(row, row + width);
    join(line, towards_zero);
    std::copy(line.begin(), line.end(), row);
  }
}

// What was split last is joined first.
void join_level(Plane& plane, std::size_t width, std::size_t height, bool as_rodinia) {
  if (as_rodinia) {
    join_rows(plane, width, height, true);
    join_columns(plane, width, height, true);
  } else {
    join_columns(plane, width, height, false);
    join_rows(plane, width, height, false);
  }
}

Plane read_plane(const Input& in, const File& out, unsigned colour) {
  Plane plane{in.numbers().at("width"), dwt2d_height(in.numbers()), {}};
  const std::size_t count = plane.width * plane.height;
  std::vector<short> cells(plane.width);
  plane.cells.reserve(count);
  for (std::size_t row = 0; row < plane.height; ++row) {
    out.read(cells.data(),
             cells.size() * sizeof(short),
             (colour * count + row * plane.width) * sizeof(short));
    plane.cells.insert(plane.cells.end(), cells.begin(), cells.end());
  }
  return plane;
}

// The first row with a pixel that the plane has not, or the height.
std::size_t wrong_row(const Input& in, const Plane& plane, unsigned colour) {
  for (std::size_t row = 0; row < plane.height; ++row) {
    const std::size_t bytes = plane.width * dwt_colours;
    const std::vector<unsigned char> pixels = in.elements<unsigned char>(0, row * bytes, bytes);
    for (std::size_t x = 0; x < plane.width; ++x) {
      if (plane.cells[row * plane.width + x] + 128 != pixels[x * dwt_colours + colour]) {
        return row;
      }
    }
  }
  return plane.height;
}

}  // namespace

Format dwt2d_format() {
  // With more than five levels a coefficient might not fit into 16 bits.
  return {"dwt2d",
          {{"width", 1024, 1, 65536, "of the image, in pixels"},
           {"height", 0, 0, 65536, "of the image, in pixels; 0: as its width"},
           {"levels", 3, 1, 5, "of the transform"},
           {"rodinia", 0, 0, 1, "1: columns first, and rounded towards zero, as Rodinia's"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            return {numbers.at("width") * dwt2d_height(numbers) * dwt_colours};
          }};
}

std::uint64_t dwt2d_output_bytes(const Numbers& numbers) {
  return numbers.at("width") * dwt2d_height(numbers) * dwt_colours * sizeof(short);
}

std::uint64_t dwt2d_height(const Numbers& numbers) {
  return numbers.at(numbers.at("height") == 0 ? "width" : "height");
}

Verdict dwt2d_check(const Input& in, const File& out) {
  const std::uint64_t levels = in.numbers().at("levels");
  const bool as_rodinia = in.numbers().at("rodinia") == 1;
  for (unsigned colour = 0; colour < dwt_colours; ++colour) {
    Plane plane = read_plane(in, out, colour);
    std::vector<std::pair<std::size_t, std::size_t>> sizes = {{plane.width, plane.height}};
    while (sizes.size() < levels) {
      sizes.emplace_back((sizes.back().first + 1) / 2, (sizes.back().second + 1) / 2);
    }
    for (; !sizes.empty(); sizes.pop_back()) {
      join_level(plane, sizes.back().first, sizes.back().second, as_rodinia);
    }
    const std::size_t row = wrong_row(in, plane, colour);
    if (row < plane.height) {
      return {false,
              "transformed back, row " + std::to_string(row) + " of colour " +
                  std::to_string(colour) + " is not the image's"};
    }
  }
  return {true, "transformed back, every pixel is the image's"};
}
