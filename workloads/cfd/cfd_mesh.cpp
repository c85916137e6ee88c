// A tetrahedron goes from a cube's first corner to its last along three edges, in one of the six
// orders of the axes.
#include "workloads/cfd/cfd_mesh.hpp"

#include <algorithm>

namespace {

constexpr std::uint64_t wall_in = 48;  // one side of so many is a wall

using Order = std::array<unsigned, 3>;
constexpr std::array<Order, 6> orders = {
    {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}}};

unsigned tetrahedron_of(const Order& order) {
  return static_cast<unsigned>(std::find(orders.begin(), orders.end(), order) - orders.begin());
}

// The normals of the unit cube's tetrahedra times twice the area. Opposite to corner i of one with
// corners 0, e_a, e_a + e_b, e_a + e_b + e_c.
std::array<int, 3> unit_normal(const Order& order, unsigned face) {
  std::array<int, 3> normal = {};
  if (face > 0) {
    normal.at(order.at(face - 1)) = -1;
  }
  if (face < 3) {
    normal.at(order.at(face)) = 1;
  }
  return normal;
}

}  // namespace

CfdBox::Cube CfdBox::cube_of(std::uint64_t element) const {
  const std::uint64_t cube = element / orders.size();
  return {cube % cubes_, cube / cubes_ % cubes_, cube / cubes_ / cubes_};
}

std::uint64_t CfdBox::element_of(const Cube& cube, unsigned tetrahedron) const {
  return ((cube[2] * cubes_ + cube[1]) * cubes_ + cube[0]) * orders.size() + tetrahedron;
}

// Of the cubes at this place of an axis: they are not quite cubes.
float CfdBox::width(unsigned axis, std::uint64_t place) const {
  return 0.75F + 0.5F * random_.unit(axis, place);
}

float CfdBox::volume(std::uint64_t element) const {
  const Cube cube = cube_of(element);
  return width(0, cube[0]) * width(1, cube[1]) * width(2, cube[2]) / 6.0F;
}

int CfdBox::across(Cube cube, unsigned tetrahedron, unsigned axis, bool forwards) const {
  const bool inside = forwards ? cube.at(axis) + 1 < cubes_ : cube.at(axis) > 0;
  if (!inside) {
    return axis == 2 ? cfd_wall : cfd_far;
  }
  const Cube before = cube;
  cube.at(axis) += forwards ? 1 : ~0ULL;
  // Both sides ask by the cube that comes first.
  const std::uint64_t side = element_of(forwards ? before : cube, 0) + axis;
  return random_.bits(3, side) % wall_in == 0 ? cfd_wall
                                              : static_cast<int>(element_of(cube, tetrahedron));
}

int CfdBox::neighbour(std::uint64_t element, unsigned face) const {
  const auto [a, b, c] = orders.at(element % orders.size());
  const Cube cube = cube_of(element);
  switch (face) {
    case 0:
      return across(cube, tetrahedron_of({b, c, a}), a, true);
    case 1:
      return static_cast<int>(element_of(cube, tetrahedron_of({b, a, c})));
    case 2:
      return static_cast<int>(element_of(cube, tetrahedron_of({a, c, b})));
    default:
      return across(cube, tetrahedron_of({c, a, b}), c, false);
  }
}

float CfdBox::normal(std::uint64_t element, unsigned face, unsigned axis) const {
  const int unit = unit_normal(orders.at(element % orders.size()), face).at(axis);
  if (unit == 0) {
    return 0;
  }
  const Cube cube = cube_of(element);
  const unsigned second = (axis + 1) % 3;
  const unsigned third = (axis + 2) % 3;
  return 0.5F * static_cast<float>(unit) * width(second, cube.at(second)) *
         width(third, cube.at(third));
}
