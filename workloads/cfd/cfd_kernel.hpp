// A Runge-Kutta stage: a thread adds up what flows through the faces of an element.
#pragma once

#include "workloads/papers/block.hpp"

#include <cmath>

constexpr unsigned cfd_faces = 4;
constexpr unsigned cfd_variables = 5;
constexpr int cfd_wall = -1;
constexpr int cfd_far = -2;
constexpr float cfd_gamma = 1.4F;
constexpr float cfd_step = 0.12F;  // of the time that sound and wind take through an element

// What an element holds, by volume.
struct CfdGas {
  float density;
  float momentum[3];
  float energy;
};

// Arrays of all elements. Variables of a gas are arrays of their own: [5][elements].
struct CfdMesh {
  std::size_t elements;
  const float* volumes;
  const int* neighbours;  // [4][elements]
  const float* normals;   // [4][3][elements]
};

HIPPO_DEVICE inline CfdGas cfd_get(const float* gas, std::size_t elements, std::size_t element) {
  const float* at = gas + element;
  return {at[0], {at[elements], at[2 * elements], at[3 * elements]}, at[4 * elements]};
}

HIPPO_DEVICE inline void cfd_put(float* gas,
                                 std::size_t elements,
                                 std::size_t element,
                                 const CfdGas& value) {
  float* at = gas + element;
  at[0] = value.density;
  at[elements] = value.momentum[0];
  at[2 * elements] = value.momentum[1];
  at[3 * elements] = value.momentum[2];
  at[4 * elements] = value.energy;
}

// The far gas everywhere. Counts neighbours that there are not, before anybody goes there.
struct CfdBegin {
  static constexpr unsigned threads = 256;
  using Shared = NothingShared;

  CfdMesh mesh;
  CfdGas far;
  float* gas;
  unsigned* damaged;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& /*shared*/) const {
    block.each([&](unsigned thread) {
      const std::size_t element = block.index() * threads + thread;
      if (element >= mesh.elements) {
        return;
      }
      cfd_put(gas, mesh.elements, element, far);
      for (unsigned face = 0; face < cfd_faces; ++face) {
        const int neighbour = mesh.neighbours[face * mesh.elements + element];
        const bool element_there =
            neighbour >= 0 && static_cast<std::size_t>(neighbour) < mesh.elements;
        if (!element_there && neighbour != cfd_wall && neighbour != cfd_far) {
          fetch_add(*damaged, 1U);
        }
      }
    });
  }
};

// to = start - share * step * (what flows out of the element, by `from`)
struct CfdStage {
  static constexpr unsigned threads = 128;
  using Shared = NothingShared;

  CfdMesh mesh;
  CfdGas far;
  const float* start;  // of the iteration
  const float* from;
  float* to;
  float* steps;      // an element's time step over its volume
  bool makes_steps;  // in the first stage
  float share;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& /*shared*/) const {
    block.each([&](unsigned thread) {
      const std::size_t element = block.index() * threads + thread;
      if (element < mesh.elements) {
        update(element);
      }
    });
  }

 private:
  // A gas and what its fluxes are made of.
  struct Flow {
    CfdGas gas;
    float velocity[3];
    float pressure;
    float speed;  // of sound and wind together
  };

  [[nodiscard]] HIPPO_DEVICE static float dot(const float* a, const float* b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
  }

  [[nodiscard]] HIPPO_DEVICE static Flow flow_of(const CfdGas& gas) {
    Flow flow = {gas, {}, 0, 0};
    const float volume = 1.0F / gas.density;
    for (unsigned i = 0; i < 3; ++i) {
      flow.velocity[i] = gas.momentum[i] * volume;
    }
    const float square = dot(flow.velocity, flow.velocity);
    flow.pressure = (cfd_gamma - 1.0F) * (gas.energy - 0.5F * gas.density * square);
    flow.speed = sqrtf(square) + sqrtf(cfd_gamma * flow.pressure * volume);
    return flow;
  }

  // As if the gas behind a wall came against ours.
  [[nodiscard]] HIPPO_DEVICE static Flow mirrored(Flow flow, const float* normal) {
    const float twice = 2.0F / dot(normal, normal);
    const float momentum = twice * dot(flow.gas.momentum, normal);
    const float velocity = twice * dot(flow.velocity, normal);
    for (unsigned i = 0; i < 3; ++i) {
      flow.gas.momentum[i] -= momentum * normal[i];
      flow.velocity[i] -= velocity * normal[i];
    }
    return flow;
  }

  [[nodiscard]] HIPPO_DEVICE Flow behind(const Flow& own,
                                         int neighbour,
                                         const float* normal) const {
    if (neighbour == cfd_wall) {
      return mirrored(own, normal);
    }
    return flow_of(neighbour == cfd_far
                       ? far
                       : cfd_get(from, mesh.elements, static_cast<std::size_t>(neighbour)));
  }

  // Rusanov's: the mean of both sides, less what the fastest wave evens out.
  HIPPO_DEVICE static void add_flux(const Flow& own,
                                    const Flow& other,
                                    const float* normal,
                                    CfdGas& sum) {
    const float through = 0.5F * dot(own.velocity, normal);
    const float back = 0.5F * dot(other.velocity, normal);
    const float wave = 0.5F * larger(own.speed, other.speed) * sqrtf(dot(normal, normal));
    const float pressure = 0.5F * (own.pressure + other.pressure);
    sum.density += own.gas.density * through + other.gas.density * back -
                   wave * (other.gas.density - own.gas.density);
    for (unsigned i = 0; i < 3; ++i) {
      sum.momentum[i] += own.gas.momentum[i] * through + other.gas.momentum[i] * back +
                         pressure * normal[i] -
                         wave * (other.gas.momentum[i] - own.gas.momentum[i]);
    }
    sum.energy += (own.gas.energy + own.pressure) * through +
                  (other.gas.energy + other.pressure) * back -
                  wave * (other.gas.energy - own.gas.energy);
  }

  [[nodiscard]] HIPPO_DEVICE float step_of(std::size_t element, const Flow& own) const {
    if (makes_steps) {
      const float volume = mesh.volumes[element];
      steps[element] = cfd_step * cbrtf(volume) / (own.speed * volume);
    }
    return steps[element];
  }

  HIPPO_DEVICE void update(std::size_t element) const {
    const Flow own = flow_of(cfd_get(from, mesh.elements, element));
    CfdGas sum = {};
    for (unsigned face = 0; face < cfd_faces; ++face) {
      float normal[3];
      for (unsigned i = 0; i < 3; ++i) {
        normal[i] = mesh.normals[(face * std::size_t{3} + i) * mesh.elements + element];
      }
      const int neighbour = mesh.neighbours[face * mesh.elements + element];
      add_flux(own, behind(own, neighbour, normal), normal, sum);
    }
    const float factor = share * step_of(element, own);
    CfdGas next = cfd_get(start, mesh.elements, element);
    next.density -= factor * sum.density;
    for (unsigned i = 0; i < 3; ++i) {
      next.momentum[i] -= factor * sum.momentum[i];
    }
    next.energy -= factor * sum.energy;
    cfd_put(to, mesh.elements, element, next);
  }
};
