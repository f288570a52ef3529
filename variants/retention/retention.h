// Which slot a token gets, and so which token is forgotten: the state of one (sequence, layer, kv head).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace kv {

class Retention {
 public:
  virtual ~Retention() = default;
  virtual std::unique_ptr<Retention> clone() const = 0;

  // The slot of the next token (they come in order, from 0). A slot that was in use loses its token.
  virtual int64_t admit() = 0;
  // Slots in use are 0 … slots()-1.
  virtual int64_t slots() const = 0;
  virtual int64_t token_at(int64_t slot) const = 0;
  // Slots in use once `tokens` have been admitted.
  virtual int64_t slots_after(int64_t tokens) const = 0;

  // True if no token is ever lost and slot i holds token i: whole chunks may then be appended before they
  // attend.
  virtual bool keeps_all() const { return false; }
  // True if observe() must be called, with the attention mass of each slot, after each step.
  virtual bool wants_mass() const { return false; }
  virtual void observe(std::span<const float> /*mass*/) {}
};

}  // namespace kv
