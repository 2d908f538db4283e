// Stands in front of every other file here.

// The type that sums of T are taken in: float for T of 16 bits.
template <typename T>
struct Sum {
  typedef float type;
};
template <>
struct Sum<double> {
  typedef double type;
};
