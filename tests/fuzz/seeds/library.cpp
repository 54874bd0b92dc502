// SPDX-License-Identifier: Apache-2.0
// What compilers make of C++, as small as can be and without headers: exceptions, jump tables, tail calls, inlined
// functions, templates, clones, virtual functions, and names that the default probe map matches.

extern "C" int imported_function(int);

#define NOT_INLINED __attribute__((noinline))

#ifdef WITH_LANDING
extern "C" void* __cxa_begin_catch(void* exception) noexcept {
    imported_function(1);
    return exception;
}
#endif

namespace pybind11 {
struct handle {
    void* object;
};
}  // namespace pybind11

namespace miniops {

namespace detail {
NOT_INLINED int TensorFromPybind11HandleImpl(pybind11::handle handle) {
    return imported_function(handle.object != nullptr) + 1;
}
}  // namespace detail

class Handle {};
class Config {};

namespace generated_dispatch {
NOT_INLINED int CallGemm(Handle const&, Config const&, int size) {
    return imported_function(size);
}
}  // namespace generated_dispatch

}  // namespace miniops

namespace sample {

template <typename Number>
inline Number twice(Number number) {
    return number + static_cast<Number>(imported_function(static_cast<int>(number)));
}

class Shape {
public:
    Shape();
    virtual ~Shape();
    virtual int area() const;

private:
    int side_;
};
Shape::Shape() : side_(imported_function(0)) {}
Shape::~Shape() {
    imported_function(side_);
}
int Shape::area() const {
    return twice(side_) * side_;
}

#ifdef __cpp_exceptions
NOT_INLINED int catches(int count) {
    try {
        Shape shape;
        return imported_function(count) + shape.area();
    } catch (int error) {
        return imported_function(error);
    }
}
int throws(int count) {
    if (count > 3) throw count;
    return twice(count) + static_cast<int>(twice(static_cast<long>(count)));
}
#else
int catches(int count);
int throws(int count);
#endif

// A jump table.
int chooses(int which, int count) {
    switch (which) {
        case 0:
            return imported_function(count);
        case 1:
            return imported_function(count + 1) * 3;
        case 2:
            return catches(count) - 7;
        case 3:
            return count * 11;
        case 4:
            return imported_function(imported_function(count));
        case 5:
            return throws(count) ^ 5;
        case 7:
            return count / 3;
        default:
            return -1;
    }
}

// Tail calls: to another file, to this one, through a pointer.
int forwards_outside(int count) {
    return imported_function(count + 1);
}
int forwards(int count) {
    return catches(count + 1);
}
int forwards_to_pointer(int (*function)(int), int count) {
    return function(count + 2);
}

// Of a function that is called with one constant compilers make a clone, of one with an unlikely path a .cold part.
static NOT_INLINED int local_with_constant(int count, int factor) {
    return imported_function(count) * factor;
}
int calls_clone(int count) {
    if (__builtin_expect(count < 0, 0)) {
        imported_function(7);
        __builtin_trap();
    }
    return local_with_constant(count, 3) + local_with_constant(count + 1, 3);
}

}  // namespace sample
