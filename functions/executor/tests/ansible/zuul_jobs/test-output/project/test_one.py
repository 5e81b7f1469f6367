import unittest


class One(unittest.TestCase):
    def test_it(self):
        self.assertEqual(1 + 1, 2)
